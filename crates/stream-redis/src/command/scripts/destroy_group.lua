-- Destroys the group if nobody reads it, nothing is pending and it was delivered the id ARGV[2] last, which head.lua calls
-- consumer. Returns 1 where it was destroyed, 0 where it is in use, has moved on or is not there. Destroying a group
-- destroys its pending list and its place in the stream, and DESTROY cannot be told not to.
local rows = redis.pcall('XINFO', 'GROUPS', key)
if failed(rows) then return rows end
for i = 1, #rows do
  local row = {}
  for j = 1, #rows[i] - 1, 2 do row[rows[i][j]] = rows[i][j + 1] end
  if row['name'] == group then
    if row['consumers'] ~= 0 or row['pending'] ~= 0 or row['last-delivered-id'] ~= consumer then return 0 end
    local reply = redis.pcall('XGROUP', 'DESTROY', key, group)
    if failed(reply) then return reply end
    return 1
  end
end
return 0
