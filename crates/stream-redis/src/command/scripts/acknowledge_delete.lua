-- Acknowledges those of the ids ARGV[3..] that the consumer still owns, and deletes them if the stream has no other group.
-- Returns the others, which stay as they are.
local last = #ARGV
local lost = {}
-- Who may not look at the groups deletes nothing either.
local groups = redis.pcall('XINFO', 'GROUPS', key)
local alone = not failed(groups) and #groups == 1
local ack, del = {'XACK', key, group}, {'XDEL', key}
for i = 3, last do
  local own, err = owns(ARGV[i])
  if err then return err end
  if own then
    ack[#ack + 1], del[#del + 1] = ARGV[i], ARGV[i]
  else
    lost[#lost + 1] = ARGV[i]
  end
  -- Lua hands over a few thousand arguments at most.
  if #ack > 3 and (#ack >= 1000 or i == last) then
    local reply = redis.pcall(unpack(ack))
    if failed(reply) then return reply end
    -- They are acknowledged now: who may not delete them leaves them to be trimmed.
    if alone then redis.pcall(unpack(del)) end
    ack, del = {'XACK', key, group}, {'XDEL', key}
  end
end
return lost
