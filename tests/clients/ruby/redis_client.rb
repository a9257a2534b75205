require 'redis_client'
require_relative 'adapter'

shared = RedisClient.config(host: HOST, port: PORT, protocol: PROTOCOL).new_pool(timeout: 10, size: 3)
holder = lambda do
  me = RedisClient.config(host: HOST, port: PORT, read_timeout: 10, reconnect_attempts: 0).new_client
  token = me.call('LOCK.ACQUIRE', 'report', 'WAIT', 6000)
  [me.method(:call), token]
end
serve(RedisClient::VERSION, shared.method(:call), holder)
