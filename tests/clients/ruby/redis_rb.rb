require 'redis'
require_relative 'adapter'

shared = Redis.new(host: HOST, port: PORT)
holder = lambda do
  me = Redis.new(host: HOST, port: PORT, read_timeout: 10, reconnect_attempts: 0)
  token = me.call('LOCK.ACQUIRE', 'report', 'WAIT', 6000)
  [me.method(:call), token]
end
serve(Redis::VERSION, shared.method(:call), holder)
