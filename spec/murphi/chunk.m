-- One chunk of one room, from two prefill ranks (writers) to one decode rank (reader), by hand from its prose.
--
-- The reader gives the chunk one region with a part for each writer; the fan-in is a set.  A writer asks for the region
-- when its KV is computed, and not before.  The reader reserves the region when every writer has asked for it, or for the
-- pages.  A writer that asks earlier is told so; a writer that asks while the ring is full is told that it is in the
-- queue.  Either asks once more if the region comes when much of the lease is over.  A writer with a region and its
-- watermark gathers, writes once, and notifies.  If its lease ends before the write begins, it asks for the region again.
--
-- A writer that has lost patience, that is refused, or whose staged write has failed for certain, gives the region up for
-- good and asks for the pages; the part that it writes there counts like a staged one.  A staged write that carries its
-- own notification may fail after it has told of the part.  If the reader hears of the part first, it confirms it when it
-- is asked for the pages; if it is asked first, what the write told counts for nothing.  When every staged part is in
-- place, they are scattered, and the region is free; parts that go over pages may come later.  When every writer has given
-- the region up, it is free at once.
--
-- A room that fails on one side is told to the other, ends there too, and is given back only when it has drained:
-- no gather and no write in flight, and the other side says so (DRAINED, confirmed by NOTED).  Until then a region
-- that may still be written is quarantined.
--
-- The network is a set: what was sent may arrive at any time, in any order, any number of times, or never.
-- A lease may be found over whenever it is looked at, and a timer may end whenever it runs.
-- A write lands at once, at any time; it can fail, or be in doubt first; its writer hears of its end later.  If it
-- carries its notification, that is said when it lands, and the writer may be confirmed before it knows of the end.
--
-- Where the ring is not empty at first, it is another chunk's, whole, until that one is freed.

const
  EMPTY: 0;
  FULL: 1;      -- and the ring promises nothing that is not free
  SMALL: 2;     -- smaller than the chunk
  AHEAD: 3;     -- as FULL, but the region is promised at once
  FIRST: 0;     -- the rings that are looked at: FIRST .. LAST
  LAST: 2;
  TROUBLE: 1;   -- engines give up, kernels and writes fail, patience ends rooms
  TELLS: 0;     -- a staged write carries its notification

type
  Ring: FIRST..LAST;
  Writer: 0..1;
  WRoom: enum { W_OPEN, W_DRAINING, W_UNNOTED, W_DONE, W_FAILED };
  Send: enum {
    NO_SEND, NO_KV, ASKING, OTHERS, TURN, WAITING, GATHERING, WRITING, ASKING_PAGES, WRITING_PAGES, TELLING, STOPPING
  };
  RRoom: enum { R_OPEN, R_DRAINING, R_SETTLING, R_DONE, R_FAILED };
  Grant: enum { NO_GRANT, R_OTHERS, QUEUED, FILLING, FILLING_PAGES, SCATTERING, QUARANTINED };
  Write: enum { STILL, STAGED, PAGED, STAGED_DOUBT, PAGED_DOUBT, LANDED };
  Word: enum {
    REQ, PAGES_REQ, MARK_REQ, NOTE_STAGED, NOTE_PAGES, DRAINED,
    RSP_WAIT, RSP_OPEN, EARLY, EARLY_MARK, IN_QUEUE, DENIED, PAGES, MARK, ACK, ABORT, NOTED
  };

var
  ring: Ring;
  other: boolean;                          -- the ring is another chunk's
  sent: array [Writer] of array [Word] of boolean;
  -- writers
  wroom: array [Writer] of WRoom;
  send: array [Writer] of Send;
  gather: array [Writer] of boolean;       -- a gather is under way
  seen: array [Writer] of boolean;         -- knows that nothing else is in the region
  acked: array [Writer] of boolean;        -- confirmed before its write is known to be over
  told: array [Writer] of boolean;         -- its write has failed, and may have told of the part
  -- reader
  rroom: RRoom;
  may_write: array [Writer] of boolean;    -- of a failed room: has not drained
  grant: Grant;
  hopes: array [Writer] of boolean;        -- asked for the region; has neither given it up nor filled its part
  arrived: array [Writer] of boolean;
  by_pages: array [Writer] of boolean;
  -- memory
  write: array [Writer] of Write;
  staged: array [Writer] of boolean;       -- its bytes are in the region
  paged: array [Writer] of boolean;        -- its bytes are in the pages

function flying(w: Writer): boolean;
begin
  return write[w] = STAGED | write[w] = PAGED | write[w] = STAGED_DOUBT | write[w] = PAGED_DOUBT;
end;

function to_ring(w: Writer): boolean;
begin
  return write[w] = STAGED | write[w] = STAGED_DOUBT;
end;

function held(): boolean;
begin
  return grant = FILLING | grant = SCATTERING | grant = QUARANTINED;
end;

function failed(): boolean;
begin
  return rroom = R_DRAINING | rroom = R_SETTLING | rroom = R_FAILED;
end;

procedure say(w: Writer; word: Word);
begin
  sent[w][word] := true;
end;

-- ------------------------------------------------------------------------------------------------ a writer's room
procedure w_released(w: Writer);
begin
  assert !gather[w] & !flying(w) "S4: a writer's pages are given back while they are read";
end;

procedure drained_if_ended(w: Writer);
begin
  if wroom[w] = W_DRAINING & send[w] = NO_SEND then
    wroom[w] := W_UNNOTED;
    say(w, DRAINED);
    w_released(w);
  end;
end;

procedure w_fail(w: Writer);
begin
  if wroom[w] = W_OPEN then
    wroom[w] := W_DRAINING;
    acked[w] := false;
    told[w] := false;
    if send[w] = GATHERING | send[w] = WRITING | send[w] = WRITING_PAGES then
      send[w] := STOPPING;
    elsif send[w] != STOPPING then
      send[w] := NO_SEND;
    end;
  end;
  drained_if_ended(w);
end;

procedure w_done(w: Writer);
begin
  assert write[w] = STILL & (staged[w] | paged[w] | failed()) "S6: success before the bytes are there";
  send[w] := NO_SEND;
  wroom[w] := W_DONE;
  acked[w] := false;
  told[w] := false;
  w_released(w);
end;

procedure ask_region(w: Writer);
begin
  send[w] := ASKING;
  say(w, REQ);
end;

procedure ask_pages(w: Writer);
begin
  send[w] := ASKING_PAGES;
  say(w, PAGES_REQ);
end;

procedure region_usable(w: Writer; late: boolean);
begin
  if late then
    ask_region(w);
  else
    send[w] := GATHERING;
    gather[w] := true;
  end;
end;

procedure mark_seen(w: Writer; late: boolean);
begin
  seen[w] := true;
  if send[w] = WAITING then region_usable(w, late); end;
end;

-- what was asked for, or waited for in turn, is there
procedure granted(w: Writer; open: boolean; late: boolean);
begin
  if (send[w] = OTHERS | send[w] = TURN) & late then
    say(w, REQ);
  elsif send[w] = ASKING | send[w] = OTHERS | send[w] = TURN then
    if open then region_usable(w, late); else send[w] := WAITING; end;
  end;
end;

procedure post(w: Writer; kind: Write);
begin
  assert write[w] = STILL "S2: a second write is posted";
  write[w] := kind;
end;

procedure slice(w: Writer);
begin
  send[w] := WRITING_PAGES;
  told[w] := false;
  post(w, PAGED);
end;

-- ------------------------------------------------------------------------------------------------- the reader's room
procedure r_released();
begin
  for w: Writer do
    assert !flying(w) "S4: pages are given back while a write is on its way";
  end;
end;

procedure no_grant();
begin
  grant := NO_GRANT;
  for w: Writer do
    hopes[w] := false;
    arrived[w] := false;
    by_pages[w] := false;
  end;
end;

procedure free_region();
begin
  for w: Writer do
    assert !to_ring(w) "S4: a region is freed while a write is on its way to it";
    staged[w] := false;
  end;
end;

procedure r_fail();
begin
  if rroom = R_OPEN then
    rroom := R_DRAINING;
    for w: Writer do
      may_write[w] := true;
      say(w, ABORT);
    end;
    if grant = FILLING then
      no_grant();
      grant := QUARANTINED;
    elsif grant != SCATTERING then
      no_grant();
    end;
  end;
end;

-- nobody can write any more
procedure settle();
begin
  if rroom = R_DRAINING & forall w: Writer do !may_write[w] end then
    if grant = QUARANTINED then
      free_region();
      no_grant();
    end;
    if grant = NO_GRANT then
      rroom := R_FAILED;
      r_released();
    else
      rroom := R_SETTLING;
    end;
  elsif rroom = R_SETTLING & grant = NO_GRANT then
    rroom := R_FAILED;
    r_released();
  end;
end;

procedure quiet(w: Writer);
begin
  may_write[w] := false;
  settle();
end;

procedure complete();
begin
  no_grant();
  if rroom = R_OPEN then
    assert paged[0] & paged[1] "S5: success without all bytes";
    rroom := R_DONE;
    r_released();
  end;
  settle();
end;

-- ---------------------------------------------------------------------------------------------- the reader's chunk
procedure tell_region(w: Writer);
begin
  if other then say(w, RSP_WAIT); else say(w, RSP_OPEN); end;
end;

procedure all_by_pages();
begin
  grant := FILLING_PAGES;
  for w: Writer do
    by_pages[w] := true;
    hopes[w] := false;
  end;
end;

-- every writer has asked: those that have not given the region up hope for it
procedure reserve();
begin
  if ring = SMALL then
    all_by_pages();
    for w: Writer do say(w, DENIED); end;
  elsif ring = FULL & other then
    grant := QUEUED;
    for w: Writer do say(w, IN_QUEUE); end;
  else
    grant := FILLING;
    for w: Writer do if hopes[w] then tell_region(w); end; end;
  end;
end;

procedure reserve_if_all_asked();
begin
  if forall w: Writer do hopes[w] | by_pages[w] end then reserve(); end;
end;

procedure tell_early(w: Writer);
begin
  if ring = EMPTY | ring = SMALL | other then say(w, EARLY); else say(w, EARLY_MARK); end;
end;

procedure asked_region(w: Writer);
begin
  switch grant
    case NO_GRANT:
      if rroom = R_OPEN then
        grant := R_OTHERS;
        hopes[w] := true;
        tell_early(w);
      elsif failed() then
        say(w, ABORT);
      end;
    case R_OTHERS:
      if by_pages[w] then
        say(w, DENIED);
      else
        hopes[w] := true;
        reserve_if_all_asked();
        if grant = R_OTHERS then tell_early(w); end;
      end;
    case QUEUED:
      if by_pages[w] then say(w, DENIED); else say(w, IN_QUEUE); end;
    case FILLING:
      if by_pages[w] then say(w, DENIED); else tell_region(w); end;
    case FILLING_PAGES:
      if !arrived[w] then say(w, DENIED); end;
  end;
end;

-- the parts in the region are whole; those that go over pages may come later
procedure scatter();
begin
  for w: Writer do
    if by_pages[w] then
      assert !staged[w] "S3: a part is staged that is not scattered";
    else
      assert staged[w] "S3: a scatter reads what is not there";
    end;
  end;
  grant := SCATTERING;
  for w: Writer do hopes[w] := false; end;
end;

procedure scatter_if_staged();
begin
  if forall w: Writer do by_pages[w] | arrived[w] end then scatter(); end;
end;

procedure asked_pages(w: Writer);
begin
  switch grant
    case NO_GRANT:
      if rroom = R_OPEN then
        grant := R_OTHERS;
        by_pages[w] := true;
        say(w, PAGES);
      elsif rroom = R_DONE then
        say(w, ACK);
      elsif failed() then
        say(w, ABORT);
      end;
    case R_OTHERS, QUEUED, FILLING:
      if arrived[w] then
        say(w, ACK);
      else
        by_pages[w] := true;
        staged[w] := false;
        hopes[w] := false;
        say(w, PAGES);
        if forall v: Writer do by_pages[v] end then
          if grant = FILLING then free_region(); end;
          grant := FILLING_PAGES;
        elsif grant = R_OTHERS then
          reserve_if_all_asked();
        elsif grant = FILLING then
          scatter_if_staged();
        end;
      end;
    case FILLING_PAGES, SCATTERING:
      if arrived[w] then say(w, ACK); else say(w, PAGES); end;
  end;
end;

procedure notified(w: Writer; through_pages: boolean);
begin
  switch grant
    case NO_GRANT:
      if rroom = R_DONE then say(w, ACK); elsif failed() then say(w, ABORT); end;
    case R_OTHERS, QUEUED, FILLING, FILLING_PAGES, SCATTERING:
      if arrived[w] then
        say(w, ACK);
      elsif by_pages[w] = through_pages then
        say(w, ACK);
        arrived[w] := true;
        hopes[w] := false;
        if grant = FILLING then
          scatter_if_staged();
        elsif grant = FILLING_PAGES & forall v: Writer do arrived[v] end then
          complete();
        end;
      end;
  end;
end;

-- --------------------------------------------------------------------------------------------------------- the start
ruleset r: Ring do
  startstate "both forwards are scheduled"
  begin
    ring := r;
    other := r = FULL | r = AHEAD;
    for w: Writer do
      for word: Word do sent[w][word] := false; end;
      wroom[w] := W_OPEN;
      send[w] := NO_KV;
      gather[w] := false;
      seen[w] := !other;
      acked[w] := false;
      told[w] := false;
      may_write[w] := false;
      write[w] := STILL;
      staged[w] := false;
      paged[w] := false;
    end;
    rroom := R_OPEN;
    no_grant();
  end;
end;

-- ------------------------------------------------------------------------------------------------- at the writers
ruleset w: Writer do

  rule "the writer's engine gives up" TROUBLE = 1 & wroom[w] = W_OPEN ==> begin w_fail(w); end;

  rule "KV is produced" send[w] = NO_KV ==> begin ask_region(w); end;

  ruleset late: boolean do
    rule "RSP: wait for the watermark" sent[w][RSP_WAIT] ==>
    begin
      granted(w, seen[w], late);
    end;

    rule "RSP: write at once" sent[w][RSP_OPEN] ==>
    begin
      mark_seen(w, late);
      granted(w, true, late);
    end;

    rule "PAGES" sent[w][PAGES] & send[w] = ASKING_PAGES ==>
    begin
      if late then
        ask_pages(w);
      else
        slice(w);
      end;
    end;

    rule "WATERMARK" sent[w][MARK] ==> begin mark_seen(w, late); end;

    rule "gathered" gather[w] ==>
    begin
      gather[w] := false;
      if send[w] = STOPPING then
        send[w] := NO_SEND;
        drained_if_ended(w);
      elsif late then
        ask_region(w);
      else
        send[w] := WRITING;
        post(w, STAGED);
      end;
    end;
  end;

  rule "gather failed" TROUBLE = 1 & gather[w] ==>
  begin
    gather[w] := false;
    send[w] := NO_SEND;
    w_fail(w);
  end;

  rule "QUEUED, other writers have not asked" sent[w][EARLY] & send[w] = ASKING ==> begin send[w] := OTHERS; end;

  rule "the same, with the watermark" sent[w][EARLY_MARK] ==>
  begin
    if send[w] = ASKING then send[w] := OTHERS; end;
    mark_seen(w, false);
  end;

  rule "QUEUED" sent[w][IN_QUEUE] & (send[w] = ASKING | send[w] = OTHERS) ==> begin send[w] := TURN; end;

  rule "DENIED" sent[w][DENIED] & (send[w] = ASKING | send[w] = OTHERS | send[w] = TURN) ==> begin ask_pages(w); end;

  rule "patience with the ring ends"
    send[w] = ASKING | send[w] = OTHERS | send[w] = TURN | send[w] = WAITING
  ==>
  begin
    ask_pages(w);
  end;

  rule "the watermark is asked for" send[w] = WAITING ==> begin say(w, MARK_REQ); end;

  rule "patience ends the room"
    TROUBLE = 1
    & (send[w] = GATHERING | send[w] = WRITING | send[w] = WRITING_PAGES | send[w] = ASKING_PAGES | send[w] = TELLING)
  ==>
  begin
    w_fail(w);
  end;

  rule "ACK" sent[w][ACK] & (send[w] = TELLING | told[w]) ==> begin w_done(w); end;

  rule "ACK, before the write is known to be over" TELLS = 1 & sent[w][ACK] & send[w] = WRITING ==>
  begin
    acked[w] := true;
  end;

  rule "ABORT" sent[w][ABORT] ==>
  begin
    if wroom[w] = W_OPEN then
      w_fail(w);
    elsif wroom[w] != W_DRAINING then
      say(w, DRAINED);
    end;
  end;

  rule "NOTED" sent[w][NOTED] & wroom[w] = W_UNNOTED ==> begin wroom[w] := W_FAILED; end;

  rule "it is told no more" TROUBLE = 1 & wroom[w] = W_UNNOTED ==> begin wroom[w] := W_FAILED; end;

  -- ------------------------------------------------------------------------------------------------- its write
  rule "bytes land" flying(w) ==>
  begin
    assert !staged[w] & !paged[w] "S2: a part is written twice";
    if to_ring(w) then
      assert held() & grant != SCATTERING & !other "S1: a write lands in a region that is not its own";
      staged[w] := true;
      if TELLS = 1 then say(w, NOTE_STAGED); end;
    else
      assert rroom != R_FAILED "S4: a write lands in pages that were given back";
      paged[w] := true;
    end;
    write[w] := LANDED;
  end;

  rule "the write is known to be over" write[w] = LANDED ==>
  begin
    write[w] := STILL;
    if send[w] = WRITING & acked[w] then
      w_done(w);
    elsif send[w] = WRITING then
      send[w] := TELLING;
      say(w, NOTE_STAGED);
    elsif send[w] = WRITING_PAGES then
      send[w] := TELLING;
      say(w, NOTE_PAGES);
    else
      send[w] := NO_SEND;
      drained_if_ended(w);
    end;
  end;

  rule "the write fails" TROUBLE = 1 & (flying(w) | (TELLS = 1 & write[w] = LANDED & send[w] = WRITING)) ==>
  begin
    write[w] := STILL;
    if send[w] = WRITING & acked[w] then
      w_done(w);
    elsif send[w] = WRITING then
      told[w] := TELLS = 1;
      ask_pages(w);
    else
      send[w] := NO_SEND;
      w_fail(w);
    end;
  end;

  rule "the write is in doubt" TROUBLE = 1 & (write[w] = STAGED | write[w] = PAGED) ==>
  begin
    if write[w] = STAGED then write[w] := STAGED_DOUBT; else write[w] := PAGED_DOUBT; end;
    w_fail(w);
  end;

  -- --------------------------------------------------------------------------------------------- at the reader
  rule "STAGING_REQ" sent[w][REQ] ==> begin asked_region(w); end;
  rule "PAGES_REQ" sent[w][PAGES_REQ] ==> begin asked_pages(w); end;
  rule "WATERMARK_REQ" sent[w][MARK_REQ] & !other ==> begin say(w, MARK); end;
  rule "STG_NOTIFY, staged" sent[w][NOTE_STAGED] ==> begin notified(w, false); end;
  rule "STG_NOTIFY, pages" sent[w][NOTE_PAGES] ==> begin notified(w, true); end;

  rule "DRAINED" sent[w][DRAINED] ==>
  begin
    say(w, NOTED);
    r_fail();
    quiet(w);
  end;
end;

rule "the reader's engine gives up" TROUBLE = 1 & rroom = R_OPEN ==> begin r_fail(); end;

rule "the other chunk is freed" other ==>
begin
  other := false;
  if grant = QUEUED then
    grant := FILLING;
    for w: Writer do if hopes[w] then say(w, RSP_OPEN); end; end;
  elsif grant = FILLING then
    for w: Writer do if hopes[w] then say(w, MARK); end; end;
  end;
end;

rule "scattered" grant = SCATTERING ==>
begin
  for w: Writer do if staged[w] then paged[w] := true; end; end;
  free_region();
  if failed() | forall w: Writer do arrived[w] end then complete(); else grant := FILLING_PAGES; end;
end;

rule "scatter failed" TROUBLE = 1 & grant = SCATTERING ==>
begin
  free_region();
  no_grant();
  r_fail();
  settle();
end;

liveness "L1: everything can end"
  (rroom = R_DONE | rroom = R_FAILED) & grant = NO_GRANT
  & forall w: Writer do (wroom[w] = W_DONE | wroom[w] = W_FAILED) & !gather[w] end;

invariant "S6: the reader's success is every writer's bytes"
  rroom = R_DONE -> (paged[0] & paged[1]);

invariant "S11: a region is not another's"
  grant = FILLING & other -> !staged[0] & !staged[1] & !to_ring(0) & !to_ring(1);

-- How many states there are of each kind: what is compared, beside their number, with the ranks that run.
cover "ring empty" ring = EMPTY;
cover "ring full" ring = FULL;
cover "ring small" ring = SMALL;
cover "ring ahead" ring = AHEAD;
cover "reader OPEN" rroom = R_OPEN;
cover "reader DRAINING" rroom = R_DRAINING;
cover "reader SETTLING" rroom = R_SETTLING;
cover "reader DONE" rroom = R_DONE;
cover "reader FAILED" rroom = R_FAILED;
cover "grant OTHERS" grant = R_OTHERS;
cover "grant QUEUED" grant = QUEUED;
cover "grant FILLING" grant = FILLING;
cover "grant FILLING_PAGES" grant = FILLING_PAGES;
cover "grant SCATTERING" grant = SCATTERING;
cover "grant QUARANTINED" grant = QUARANTINED;
cover "writer OPEN" wroom[0] = W_OPEN;
cover "writer DRAINING" wroom[0] = W_DRAINING;
cover "writer UNNOTED" wroom[0] = W_UNNOTED;
cover "writer DONE" wroom[0] = W_DONE;
cover "writer FAILED" wroom[0] = W_FAILED;
cover "send ASKING" send[0] = ASKING;
cover "send OTHERS" send[0] = OTHERS;
cover "send TURN" send[0] = TURN;
cover "send WAITING" send[0] = WAITING;
cover "send NO_KV" send[0] = NO_KV;
cover "send GATHERING" send[0] = GATHERING;
cover "send WRITING" send[0] = WRITING;
cover "send ASKING_PAGES" send[0] = ASKING_PAGES;
cover "send WRITING_PAGES" send[0] = WRITING_PAGES;
cover "send TELLING" send[0] = TELLING;
cover "send STOPPING" send[0] = STOPPING;
cover "write STAGED" write[0] = STAGED;
cover "write PAGED" write[0] = PAGED;
cover "write STAGED_DOUBT" write[0] = STAGED_DOUBT;
cover "write PAGED_DOUBT" write[0] = PAGED_DOUBT;
cover "write LANDED" write[0] = LANDED;
