-- Starts the lease of those of the ids ARGV[3..] (ascending) anew that the consumer still owns. Returns three lists: what others
-- own; what it owned although it is deleted, which the server has dropped from the pending list instead (since 7.0); and what
-- is pending nowhere and deleted, since some search has dropped it before.
local last = #ARGV
if last < 3 then return {{}, {}, {}} end

local function is_gone(id)
  local rows = redis.pcall('XPENDING', key, group, id, id, '1')
  if failed(rows) or #rows > 0 then return false end
  rows = redis.pcall('XRANGE', key, id, id, 'COUNT', '1')
  return not failed(rows) and #rows == 0
end

-- One look at the range finds most of them. Other entries of the same consumer may lie between, so where the look does
-- not reach to the end of the range, what it did not find is asked for one by one: that is bounded, the range is not.
local own = {}
local page = 2 * (last - 2) + 100
local rows = redis.pcall('XPENDING', key, group, ARGV[3], ARGV[last], page, consumer)
if failed(rows) then return rows end
for i = 1, #rows do own[rows[i][1]] = true end
local whole = #rows < page

local lost, deleted, gone = {}, {}, {}
local claim = {'XCLAIM', key, group, consumer, '0'}
for i = 3, last do
  local id = ARGV[i]
  local mine, err = own[id], nil
  if not mine and not whole then
    mine, err = owns(id)
    if err then return err end
  end
  if mine then
    claim[#claim + 1] = id
  elseif is_gone(id) then
    gone[#gone + 1] = id
  else
    lost[#lost + 1] = id
  end
  -- Lua hands over a few thousand arguments at most.
  if #claim > 5 and (#claim >= 1000 or i == last) then
    claim[#claim + 1] = 'JUSTID'
    local reply = redis.pcall(unpack(claim))
    if failed(reply) then return reply end
    if #reply < #claim - 6 then
      local there = {}
      for n = 1, #reply do there[reply[n]] = true end
      for n = 6, #claim - 1 do
        if not there[claim[n]] then deleted[#deleted + 1] = claim[n] end
      end
    end
    claim = {'XCLAIM', key, group, consumer, '0'}
  end
end
return {lost, deleted, gone}
