-- Removes the consumer if it holds nothing and has been idle for ARGV[3] milliseconds, where there is such an argument.
-- Returns 1 where it was removed, 0 where it holds entries, is in use again or is not there. Removing a consumer that holds
-- entries would destroy them, and DELCONSUMER cannot be told not to.
local rows = redis.pcall('XINFO', 'CONSUMERS', key, group)
if failed(rows) then return rows end
for i = 1, #rows do
  local name, pending, idle
  for j = 1, #rows[i] - 1, 2 do
    if rows[i][j] == 'name' then name = rows[i][j + 1] end
    if rows[i][j] == 'pending' then pending = rows[i][j + 1] end
    if rows[i][j] == 'idle' then idle = rows[i][j + 1] end
  end
  if name == consumer then
    if pending ~= 0 or (ARGV[3] and idle < tonumber(ARGV[3])) then return 0 end
    local reply = redis.pcall('XGROUP', 'DELCONSUMER', key, group, consumer)
    if failed(reply) then return reply end
    return 1
  end
end
return 0
