-- The ring of a decode rank and one prefill rank that writes into it, by hand from the protocol's prose.
--
-- A region is granted at the head of the ring; one that does not fit before the end begins the next round at 0.  The
-- watermark is the place of the oldest region that is not freed.  A ring that becomes empty begins a new round at 0,
-- and the watermark says so (EMPTY_RULE).  A writer knows the ring only by the watermarks that have reached it, late,
-- in any order or never; it keeps the highest.  A region of the first round may be written at once, any other when
-- all of the round before it that lies below its end is freed, and all of the rounds before that.
--
-- The watermark is told when a free has moved it.  PULLED adds that the writer may ask for it at any time.
-- DROPS adds that a region may be freed although nothing was written: its writers have given it up, or its room ended.
--
-- Rounds never end, so they are counted from the watermark's: what is two rounds behind it lets nothing be written, nor
-- ever will, and is forgotten; and as soon as the watermark has left round 0 its round is called 1.  Round 0 keeps its
-- name because its regions wait for nobody.

const
  SIZE: 4;        -- units of the ring
  PROMISES: 3;    -- regions that the ring remembers at a time
  AHEAD: 2;       -- rounds that a promise may be ahead of the watermark
  EMPTY_RULE: 1;
  PULLED: 0;
  DROPS: 1;

type
  Place: 0..SIZE;
  Round: 0..AHEAD + 2;
  Slot: 0..PROMISES - 1;
  Use: enum { NOTHING, PROMISED, WRITTEN, FREED };
  Region: record
    round: Round;
    from: Place;
    upto: Place;
    use: Use;
  end;
  Mark: record
    round: Round;
    tail: Place;
  end;

var
  queue: array [Slot] of Region;   -- the oldest first
  held: 0..PROMISES;
  round: Round;                    -- where the next region goes, if it fits
  head: Place;
  seen: Mark;                      -- the writer's
  told: array [Round] of array [Place] of boolean;   -- on their way, and higher than `seen`

-- `a` is a higher watermark than `b`
function higher(ar: Round; at: Place; br: Round; bt: Place): boolean;
begin
  return ar > br | (ar = br & at > bt);
end;

function mark_round(): Round;
begin
  if held = 0 then return round; else return queue[0].round; end;
end;

function mark_tail(): Place;
begin
  if held = 0 then return head; else return queue[0].from; end;
end;

-- as far as the writer knows, everything that region `s` would overwrite is freed
function writable(s: Slot): boolean;
begin
  if s >= held then return false; end;
  if queue[s].use = FREED then return false; end;
  if queue[s].round <= seen.round then return true; end;
  if queue[s].round = 0 then return true; end;
  return queue[s].round - 1 = seen.round & queue[s].upto <= seen.tail;
end;

function meets(a: Slot; b: Slot): boolean;
begin
  return queue[a].from < queue[b].upto & queue[b].from < queue[a].upto;
end;

function vacant(): Region;
var none: Region;
begin
  none.round := 0;
  none.from := 0;
  none.upto := 0;
  none.use := NOTHING;
  return none;
end;

-- forget what no longer matters, and count rounds anew
procedure tidy();
var r: Round; shift: Round;
begin
  r := mark_round();
  if r > 1 then shift := r - 1; else shift := 0; end;
  if seen.round < shift then
    seen.round := shift;
    seen.tail := 0;
  end;
  for i: Round do
    for t: Place do
      if !higher(i, t, seen.round, seen.tail) then told[i][t] := false; end;
    end;
  end;
  if shift > 0 then
    for s: Slot do
      if s < held then queue[s].round := queue[s].round - shift; end;
    end;
    round := round - shift;
    seen.round := seen.round - shift;
    for i: Round do
      for t: Place do
        if i + shift <= AHEAD + 2 then
          told[i][t] := told[i + shift][t];
        else
          told[i][t] := false;
        end;
      end;
    end;
  end;
end;

procedure learn(r: Round; t: Place);
begin
  if higher(r, t, seen.round, seen.tail) then
    seen.round := r;
    seen.tail := t;
  end;
  tidy();
end;

procedure release(s: Slot);
var r: Round; t: Place; empty: boolean;
begin
  r := mark_round();
  t := mark_tail();
  queue[s].use := FREED;
  while held > 0 & queue[0].use = FREED do
    for i: Slot do
      if i + 1 < held then queue[i] := queue[i + 1]; end;
    end;
    queue[held - 1] := vacant();
    held := held - 1;
  end;
  if EMPTY_RULE = 1 & held = 0 then
    round := round + 1;
    head := 0;
  end;
  if mark_round() != r | mark_tail() != t then
    told[mark_round()][mark_tail()] := true;
  end;
  tidy();
end;

startstate "an empty ring"
begin
  for s: Slot do queue[s] := vacant(); end;
  held := 0;
  round := 0;
  head := 0;
  seen.round := 0;
  seen.tail := 0;
  for i: Round do for t: Place do told[i][t] := false; end; end;
end;

ruleset units: 1..SIZE do
  rule "grant"
    held < PROMISES & (head + units <= SIZE | round < mark_round() + AHEAD)
  ==>
  begin
    if head + units > SIZE then
      round := round + 1;
      head := 0;
    end;
    queue[held].round := round;
    queue[held].from := head;
    queue[held].upto := head + units;
    queue[held].use := PROMISED;
    head := head + units;
    held := held + 1;
    tidy();
  end;
end;

ruleset r: Round do
  ruleset t: Place do
    rule "a watermark arrives" told[r][t] ==> begin learn(r, t); end;
  end;
end;

rule "the watermark is asked for"
  PULLED = 1 & higher(mark_round(), mark_tail(), seen.round, seen.tail)
==>
begin
  learn(mark_round(), mark_tail());
end;

ruleset s: Slot do
  rule "write" queue[s].use = PROMISED & writable(s) ==>
  begin
    for older: Slot do
      assert older < held & older < s & meets(older, s) -> queue[older].use = FREED
        "S1: a write lands in what another region holds";
    end;
    queue[s].use := WRITTEN;
  end;

  rule "free" queue[s].use = WRITTEN ==> begin release(s); end;

  rule "give up" DROPS = 1 & queue[s].use = PROMISED ==> begin release(s); end;
end;

invariant "S7: no writer has seen more than the watermark"
  !higher(seen.round, seen.tail, mark_round(), mark_tail());

invariant "S11: what may be written covers nothing that is held"
  forall a: Slot do forall b: Slot do
    (a < b & b < held & writable(b) & meets(a, b)) -> queue[a].use = FREED
  end end;

invariant "the oldest region may be written by whoever knows the watermark"
  held = 0 | queue[0].round <= mark_round();

liveness "L2: the ring can become empty" held = 0;

-- How many states there are of each kind: what is compared, beside their number, with the ring that runs.
cover "the ring is empty" held = 0;
cover "full of promises" held = PROMISES;
cover "some region waits" exists s: Slot do s < held & queue[s].use = PROMISED & !writable(s) end;
cover "a region ahead by two rounds" exists s: Slot do s < held & queue[s].round > mark_round() + 1 end;
cover "freed behind an older one" exists s: Slot do s < held & queue[s].use = FREED end;
cover "the writer lags" higher(mark_round(), mark_tail(), seen.round, seen.tail);
cover "something can happen" DROPS = 1 | !(
  (held = PROMISES | (head = SIZE & round >= mark_round() + AHEAD))
  & (forall s: Slot do s >= held | queue[s].use = FREED | (queue[s].use = PROMISED & !writable(s)) end)
  & (forall r: Round do forall t: Place do !told[r][t] end end)
  & (PULLED = 0 | !higher(mark_round(), mark_tail(), seen.round, seen.tail)));
