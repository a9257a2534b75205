# What follows the program of README.md: its connection is killed, and it goes on. Prints what becomes of its commands, and
# how many connections they made.
# ruff: noqa: F821

operator = redis.Redis(port=me.connection.port)


def connections():
    return operator.info("stats")["total_connections_received"]


operator.client_kill_filter(_id=me.client_id())
before = connections()
for command in [("LOCK.ACQUIRE", "report"), ("PING",)]:
    try:
        print("answered:", me.execute_command(*command))
    except redis.RedisError:
        print("raises")
print("new connections:", connections() - before)
