"""valkey-py, with threads."""

import valkey
from adapter import HOST as host
from adapter import PORT as port
from adapter import PROTOCOL, serve

shared = valkey.Valkey(host, port, protocol=PROTOCOL)


class Once(valkey.Connection):
    connected = False

    def _connect(self):
        if self.connected:
            raise valkey.ValkeyError("the connection has ended, and its locks with it")
        self.connected = True
        return super()._connect()


def holder():
    pool = valkey.ConnectionPool(Once, host=host, port=port, socket_timeout=10)
    me = valkey.Valkey(connection_pool=pool, single_connection_client=True)
    token = me.execute_command("LOCK.ACQUIRE", "report", "WAIT", 6000)
    return me.execute_command, token


serve(valkey.__version__, shared.execute_command, holder)
