-- What redis_exporter asks the server on each scrape (--script=/usr/share/tether/monitoring/tether.lua): INFO tether, as
-- names and values. It answers as redis_script_values{key="tether_holds"}; prometheus.yml makes tether_holds of that, the
-- names of `tether metrics`. Labels follow a |: tether_lost_total|reason=lease.
--
-- The user needs the rights to EVAL and to INFO, and to no key.

local told, module, fault = {}, 0, 0
local function tell(name, value)
    told[#told + 1] = name
    told[#told + 1] = tostring(value)
end

local build = { tether_version = '', tether_commit = '', tether_server = '' }
-- The samples of the first are those by reason; the second is no number, though it may look like one.
local untold = { tether_lost_total = true, tether_server_build_id = true }

for name, value in string.gmatch(redis.call('INFO', 'tether'), '(tether_[%w_]+):([^\r\n]*)') do
    module = 1
    local reason = string.match(name, '^tether_lost_(%l+)_total$')
    local state = string.match(name, '^tether_pushes_(%l+)_total$')
    if name == 'tether_fault' then
        fault = 1
    elseif build[name] then
        build[name] = value
    elseif reason then
        tell('tether_lost_total|reason=' .. reason, value)
    elseif state then
        tell('tether_pushes_total|state=' .. state, value)
    elseif string.find(name, '_bucket$') then
        for bound, count in string.gmatch(value, '([^,=]+)=(%d+)') do
            tell(name .. '|le=' .. bound, count)
        end
    elseif not untold[name] and tonumber(value) then
        tell(name, value)
    end
end
if module == 1 then
    local labels = '|version=' .. build.tether_version .. '|commit=' .. build.tether_commit
    tell('tether_build_info' .. labels .. '|server=' .. build.tether_server, 1)
end
tell('tether_up', module)
tell('tether_fault', fault)
return told
