-- What redis_exporter asks the server on each scrape (--script=/usr/share/tether/monitoring/tether.lua): INFO tether, as
-- names and values. It answers as redis_script_values{key="tether_holds"}; prometheus.yml makes tether_holds of that, the
-- names of `tether metrics`. Behind a | is the label quantile.
--
-- The user needs the rights to EVAL and to INFO, and to no key.

local counters = {
    tether_pushes_sent = 'tether_pushes_total',
    tether_grants_total = 'tether_grants_total',
    tether_handoffs_total = 'tether_handoffs_total',
    tether_keys_removed_by_disconnect = 'tether_removed_by_disconnect_total',
    tether_timeouts_total = 'tether_timeouts_total',
    tether_grants_withdrawn = 'tether_grants_withdrawn_total',
    tether_deadlocks_refused = 'tether_deadlocks_refused_total',
    tether_deadlock_searches_cut = 'tether_deadlock_searches_cut_total',
    tether_lost_total = 'tether_lost_total',
    tether_records_refused = 'tether_records_refused_total',
}
local waits = { tether_wait_usec_p50 = '0.5', tether_wait_usec_p99 = '0.99' }

local told, module, fault = {}, 0, 0
local function tell(name, value)
    told[#told + 1] = name
    told[#told + 1] = tostring(value)
end

for name, value in string.gmatch(redis.call('INFO', 'tether'), '(tether_[%w_]+):([^\r\n]*)') do
    module = 1
    if name == 'tether_fault' then
        fault = 1
    elseif waits[name] then
        tell('tether_wait_seconds|' .. waits[name], tonumber(value) / 1e6)
    elseif name ~= 'tether_commit' and string.find(value, '^%d+$') then
        local reason = string.match(name, '^tether_lost_%l+$')
        tell(counters[name] or reason and reason .. '_total' or name, value)
    end
end
tell('tether_up', module)
tell('tether_fault', fault)
return told
