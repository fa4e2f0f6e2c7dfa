-- Appends an entry unless one with the same marker was appended before: KEYS[2] is the marker, ARGV[1] for how many
-- seconds it counts, ARGV[2] who asks (head.lua calls them group and consumer), ARGV[3..] the arguments of XADD behind the
-- key. Returns the id, also where it was the same asker that had set the marker; or nil where it was somebody else.
local held = redis.pcall('GET', KEYS[2])
if failed(held) then return held end
if held then
  local id, by = string.match(held, '^(%S+) (.+)$')
  if by == ARGV[2] then return id end
  return false
end
-- The marker first: if there is no memory, it is this write that is refused.
local reply = redis.pcall('SET', KEYS[2], '1', 'EX', ARGV[1])
if failed(reply) then return reply end
local id = redis.pcall('XADD', key, unpack(ARGV, 3))
if failed(id) then
  redis.pcall('DEL', KEYS[2])
  return id
end
reply = redis.pcall('SET', KEYS[2], id .. ' ' .. ARGV[2], 'EX', ARGV[1])
if failed(reply) then return reply end
return id
