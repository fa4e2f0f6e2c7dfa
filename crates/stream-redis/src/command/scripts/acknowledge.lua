-- Acknowledges those of the ids ARGV[3..] that the consumer still owns. Returns the others, which stay as they are.
local last = #ARGV
local lost = {}
local ack = {'XACK', key, group}
for i = 3, last do
  local own, err = owns(ARGV[i])
  if err then return err end
  if own then ack[#ack + 1] = ARGV[i] else lost[#lost + 1] = ARGV[i] end
  -- Lua hands over a few thousand arguments at most.
  if #ack > 3 and (#ack >= 1000 or i == last) then
    local reply = redis.pcall(unpack(ack))
    if failed(reply) then return reply end
    ack = {'XACK', key, group}
  end
end
return lost
