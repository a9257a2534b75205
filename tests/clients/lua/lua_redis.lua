-- lua-redis. It reads lines, has the client send what these say, and prints the replies (see tests/clients/check.py).
-- Without threads nothing is shared.
local redis = require 'redis'
local host, port = arg[1], tonumber(arg[2])

redis.commands.acquire = redis.command('LOCK.ACQUIRE')

local function holder()
    local me = redis.connect(host, port, 10)
    local token = me:acquire('report', 'WAIT', 6000)
    token = token and ('%.0f'):format(token) -- Lua would write and send 2.5102345679053e+14
    return me, token
end

local function answer(call, ...)
    local fine, reply = pcall(call, ...)
    local text = reply == nil and 'nil' or type(reply) == 'number' and ('%.0f'):format(reply) or tostring(reply)
    print(fine and text or ('! ' .. text:gsub('\n', ' ')))
    io.flush()
end

local function call(client, name, ...)
    return redis.command(name)(client, ...)
end

print((redis._VERSION:gsub('redis%-lua ', '')))
io.flush()
local shared, held = redis.connect(host, port), nil
for line in io.lines() do
    local words = {}
    for word in line:gsub('%%', '0'):gmatch('%S+') do
        words[#words + 1] = word
    end
    local verb = table.remove(words, 1)
    if verb == 'width' then
        print(1)
        io.flush()
    elseif verb == 'lines' then
        answer(function()
            local token
            held, token = holder()
            return token
        end)
    else
        answer(call, verb == 'holder' and held or shared, unpack(words))
    end
end
