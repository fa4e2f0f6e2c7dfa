-- Counts the start of handlers: ARGV[3] is '1' where the bodies are wanted too, then pairs of an id and the delivery count to set.
-- Returns for each pair: 0 lost (another consumer owns it, or nobody), -1 deleted from the stream (it is not pending any
-- more), 1 counted, or the entry.
local bodies = ARGV[3] == '1'
local taken = {}
for i = 4, #ARGV - 1, 2 do
  local id, count = ARGV[i], ARGV[i + 1]
  local own, err = owns(id)
  if err then return err end
  local result = 0
  if own then
    local entry
    if bodies then
      entry = redis.pcall('XCLAIM', key, group, consumer, '0', id, 'RETRYCOUNT', count)
    else
      entry = redis.pcall('XRANGE', key, id, id, 'COUNT', '1')
    end
    if failed(entry) then return entry end
    -- A deleted entry leaves nothing, or a hole on Redis 6.2, which also keeps it pending for ever.
    if not entry[1] then
      local reply = redis.pcall('XACK', key, group, id)
      if failed(reply) then return reply end
      result = -1
    elseif bodies then
      result = entry[1]
    else
      local reply = redis.pcall('XCLAIM', key, group, consumer, '0', id, 'RETRYCOUNT', count, 'JUSTID')
      if failed(reply) then return reply end
      result = 1
    end
  end
  taken[#taken + 1] = result
end
return taken
