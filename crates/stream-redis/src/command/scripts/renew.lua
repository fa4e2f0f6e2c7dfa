-- Starts the lease anew of those of the ids ARGV[3..] (ascending) that the consumer still owns. Returns the others.
local last = #ARGV
if last < 3 then return {} end

-- Other entries of the same consumer may lie between the wanted ones, so the range is read to its end.
local own = {}
local from, page = ARGV[3], math.max(last - 2, 100)
repeat
  local rows = redis.pcall('XPENDING', key, group, from, ARGV[last], page, consumer)
  if failed(rows) then return rows end
  for i = 1, #rows do own[rows[i][1]] = true end
  if #rows > 0 then from = '(' .. rows[#rows][1] end
until #rows < page

local lost = {}
local claim = {'XCLAIM', key, group, consumer, '0'}
for i = 3, last do
  if own[ARGV[i]] then claim[#claim + 1] = ARGV[i] else lost[#lost + 1] = ARGV[i] end
  -- Lua hands over a few thousand arguments at most.
  if #claim > 5 and (#claim >= 1000 or i == last) then
    claim[#claim + 1] = 'JUSTID'
    local reply = redis.pcall(unpack(claim))
    if failed(reply) then return reply end
    claim = {'XCLAIM', key, group, consumer, '0'}
  end
end
return lost
