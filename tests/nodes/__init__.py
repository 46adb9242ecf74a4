"""RabbitMQ for the tests: obtained, started as private nodes, clustered, broken, gone again.

Import from the modules: choose.obtain_broker, node.Node, cluster.Cluster, proxy.Proxy,
management.Management.
"""
