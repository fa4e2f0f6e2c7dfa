-- Removes the consumer if it holds nothing. Returns 1 where it was removed, 0 where it holds entries or is not there.
-- Removing a consumer that holds entries would destroy them, and DELCONSUMER cannot be told not to.
local rows = redis.pcall('XINFO', 'CONSUMERS', key, group)
if failed(rows) then return rows end
for i = 1, #rows do
  local name, pending
  for j = 1, #rows[i] - 1, 2 do
    if rows[i][j] == 'name' then name = rows[i][j + 1] end
    if rows[i][j] == 'pending' then pending = rows[i][j + 1] end
  end
  if name == consumer then
    if pending ~= 0 then return 0 end
    local reply = redis.pcall('XGROUP', 'DELCONSUMER', key, group, consumer)
    if failed(reply) then return reply end
    return 1
  end
end
return 0
