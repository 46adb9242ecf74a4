"""What is said in the demo beyond the package's own payloads."""

from pydantic import BaseModel


class Ticket(BaseModel):
    """What the customer wrote."""

    ticket_id: str
    text: str


class CouponOrder(BaseModel):
    """A coupon that somebody has approved."""

    ticket_id: str
    amount_cents: int
    approval_id: str


class Coupon(BaseModel):
    """A coupon that was created."""

    code: str


class Closed(BaseModel):
    """A ticket is closed: whatever is still open for it is no longer wanted."""

    ticket_id: str
    resolution: str
