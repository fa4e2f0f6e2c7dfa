-- Gives entries back: ARGV[3] is the idle time to set in milliseconds, then pairs of an id and the delivery count to set.
-- What the consumer does not own any more is left alone. Returns how many were handed back, and
-- then the ids that the consumer owned although they are deleted, which the server has dropped instead (since 7.0).
local done, deleted = 0, {}
for i = 4, #ARGV - 1, 2 do
  local own, err = owns(ARGV[i])
  if err then return err end
  if own then
    local reply = redis.pcall('XCLAIM', key, group, consumer, '0', ARGV[i], 'IDLE', ARGV[3], 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
    if failed(reply) then return reply end
    done = done + #reply
    if #reply == 0 then deleted[#deleted + 1] = ARGV[i] end
  end
end
return {done, unpack(deleted)}
