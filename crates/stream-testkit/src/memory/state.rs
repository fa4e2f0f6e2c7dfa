//! [`State`]: the whole server: its data, its connections, the reads that wait, and the order in which things happen.
//!
//! One command at a time, as on a real server. After each command the reads that wait for a changed key are served, in
//! the order they came; then the connections that waited behind such a read go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::command::read::Read;
use super::command::{Outcome, execute};
use super::db::{Change, Db, Object, Signal};
use super::fault::{Fault, Faults, Label};
use super::link::{Fate, Link, LinkId, Look, Queued, Ticket};
use super::profile::Profile;
use super::reply::{Reply, error, no_permission};

/// What the clock shows when the server is first used, in milliseconds since 1970.
pub(super) const EPOCH: i64 = 1_700_000_000_000;

/// The server behind its lock.
pub(super) struct Shared(Mutex<State>);

pub(super) struct State {
    pub(super) db: Db,
    pub(super) faults: Faults,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) down: bool,
    pub(super) latency: Duration,
    pub(super) response_timeout: Option<Duration>,
    pub(super) chunk: Option<usize>,
    pub(super) observers: Vec<Observer>,
    pub(super) links: BTreeMap<LinkId, Link>,
    waiting: Vec<Waiting>,
    runnable: VecDeque<LinkId>,
    started: Option<Instant>,
    now: Instant,
    pub(super) clock_ahead: Duration,
    next: u64,
    wakers: Vec<Waker>,
}

/// Called with every command that arrives.
pub(super) type Observer = Arc<dyn Fn(&[&[u8]]) + Send + Sync>;

/// A read that waits on the server.
struct Waiting {
    link: LinkId,
    ticket: Ticket,
    read: Read,
    deadline: Option<Instant>,
    fate: Fate,
}

impl Shared {
    pub(super) fn new(profile: Profile) -> Self {
        Self(Mutex::new(State {
            db: Db::new(profile),
            faults: Faults::default(),
            counts: BTreeMap::new(),
            down: false,
            latency: Duration::ZERO,
            response_timeout: None,
            chunk: None,
            observers: Vec::new(),
            links: BTreeMap::new(),
            waiting: Vec::new(),
            runnable: VecDeque::new(),
            started: None,
            now: Instant::now(),
            clock_ahead: Duration::ZERO,
            next: 0,
            wakers: Vec::new(),
        }))
    }

    /// Does something with the server as it is now, lets everything happen that follows from it, and wakes who waits.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let (result, wakers) = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.move_to(Instant::now());
            let result = act(&mut state);
            state.settle();
            (result, std::mem::take(&mut state.wakers))
        };
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Tells the observers about commands, without holding the lock, so that they may use the server.
    pub(super) fn observe(&self, requests: &[Vec<Bytes>]) {
        let observers = self.0.lock().unwrap_or_else(PoisonError::into_inner).observers.clone();
        for observer in &observers {
            for request in requests {
                let args: Vec<&[u8]> = request.iter().map(AsRef::as_ref).collect();
                observer(&args);
            }
        }
    }
}

impl State {
    /// Opens a connection.
    pub(super) fn open(&mut self, name: Option<String>) -> LinkId {
        let id = LinkId(self.next_number());
        self.links.insert(id, Link::new(name));
        id
    }

    /// Closes a connection from the client's side; a read that waits on it is forgotten.
    pub(super) fn close(&mut self, id: LinkId) {
        self.links.remove(&id);
        self.waiting.retain(|waiting| waiting.link != id);
    }

    /// Takes in commands of a connection; `None` when it is closed.
    pub(super) fn submit(&mut self, id: LinkId, requests: Vec<Vec<Bytes>>) -> Option<Vec<Ticket>> {
        let tickets: Vec<Ticket> = requests.iter().map(|_| Ticket(self.next_number())).collect();
        let link = self.links.get_mut(&id).filter(|link| !link.closed)?;
        for (&ticket, args) in tickets.iter().zip(requests) {
            link.expect(ticket);
            link.inbox.push_back(Queued { ticket, args });
        }
        self.runnable.push_back(id);
        Some(tickets)
    }

    /// Looks for an answer, or for how long there will be none.
    pub(super) fn look(&mut self, id: LinkId, ticket: Ticket, waker: &Waker) -> Look {
        let deadline = self.waiting.iter().find(|waiting| waiting.link == id).and_then(|waiting| waiting.deadline);
        let Some(link) = self.links.get_mut(&id) else { return Look::Closed };
        match link.look(ticket, self.now, waker) {
            Look::Wait(None) => Look::Wait(deadline),
            look => look,
        }
    }

    /// Ends the connections that `which` picks, from the server's side.
    pub(super) fn kill(&mut self, which: impl Fn(&Link) -> bool) {
        for (id, link) in &mut self.links {
            if which(link) {
                link.kill();
                link.take_wakers(&mut self.wakers);
                self.waiting.retain(|waiting| waiting.link != *id);
            }
        }
    }

    /// The client is done with a connection that it keeps: nothing more comes of it.
    pub(super) fn hang_up(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.kill();
            link.take_wakers(&mut self.wakers);
        }
        self.waiting.retain(|waiting| waiting.link != id);
    }

    /// Nobody waits for these answers any more.
    pub(super) fn abandon(&mut self, id: LinkId, tickets: &[Ticket]) {
        if let Some(link) = self.links.get_mut(&id) {
            for &ticket in tickets {
                link.abandon(ticket);
            }
        }
    }

    /// Answers every read that waits with an error.
    pub(super) fn unblock_all(&mut self, reply: &Reply) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.unblock(&waiting, reply.clone());
        }
    }

    /// Carries out a command of the test itself: not counted, no faults.
    pub(super) fn run_directly(&mut self, args: &[Bytes]) -> Reply {
        match execute(&mut self.db, args) {
            Outcome::Reply(reply) => reply,
            Outcome::Block(_) => Ok(stream_redis::Value::Nil),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Moves the clock on, and ends the reads whose time is over on the way, each at its own time.
    fn move_to(&mut self, now: Instant) {
        // The server may have been made outside of the runtime, by another clock; its time starts with its first use.
        let now = if self.started.is_some() { self.now.max(now) } else { now };
        while let Some((index, at)) = self.next_deadline(now) {
            self.set_clock(at);
            let waiting = self.waiting.remove(index);
            self.unblock(&waiting, Ok(stream_redis::Value::Nil));
            self.settle();
        }
        self.set_clock(now);
    }

    fn next_deadline(&self, now: Instant) -> Option<(usize, Instant)> {
        let deadlines = self.waiting.iter().enumerate().filter_map(|(index, waiting)| Some((index, waiting.deadline?)));
        deadlines.filter(|(_, at)| *at <= now).min_by_key(|(_, at)| *at)
    }

    fn set_clock(&mut self, now: Instant) {
        let started = *self.started.get_or_insert(now);
        self.now = now;
        let passed = now.saturating_duration_since(started) + self.clock_ahead;
        self.db.now = EPOCH + i64::try_from(passed.as_millis()).unwrap_or(i64::MAX / 2);
    }

    /// Lets everything happen that can happen now.
    fn settle(&mut self) {
        loop {
            if let Some(signal) = self.db.signals.pop_front() {
                self.serve_waiting(&signal);
            } else if let Some(id) = self.runnable.pop_front() {
                if self.step(id) {
                    self.runnable.push_front(id);
                }
            } else {
                break;
            }
        }
    }

    /// Carries out the next command of a connection; false when there is none, or none can be.
    fn step(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.closed && !link.stalled && !link.blocked) else {
            return false;
        };
        let Some(Queued { ticket, args }) = link.inbox.pop_front() else { return false };
        let label = Label::of(&args);
        *self.counts.entry(label.name.clone()).or_default() += 1;
        let fate = match self.faults.take(&label) {
            None => Fate::Arrives(self.latency),
            Some(Fault::Delay(delay)) => Fate::Arrives(self.latency + delay),
            Some(Fault::CutAfter) => Fate::Lost,
            Some(Fault::CutAfterEntries(entries)) => Fate::Torn(entries),
            Some(Fault::Error(error)) => {
                self.answer(id, ticket, Err(error), Fate::Arrives(self.latency));
                return true;
            }
            Some(Fault::CutBefore) => {
                link.closed = true;
                link.take_wakers(&mut self.wakers);
                return false;
            }
            Some(Fault::Hang) => {
                link.stalled = true;
                return false;
            }
        };
        if label.is_denied(&self.db.denied) {
            self.answer(id, ticket, Err(no_permission(&label.acl, self.db.profile)), fate);
            return true;
        }
        match execute(&mut self.db, &args) {
            Outcome::Reply(reply) => self.answer(id, ticket, reply, fate),
            Outcome::Block(read) => {
                let deadline = read.block.filter(|block| !block.is_zero()).map(|block| self.now + block);
                link.blocked = true;
                self.waiting.push(Waiting { link: id, ticket, read, deadline, fate });
            }
        }
        true
    }

    fn answer(&mut self, id: LinkId, ticket: Ticket, reply: Reply, fate: Fate) {
        if let Some(link) = self.links.get_mut(&id) {
            link.answer(ticket, reply, fate, self.now);
            link.take_wakers(&mut self.wakers);
        }
    }

    /// Ends a read that waited; its connection goes on with what it was asked after it.
    fn unblock(&mut self, waiting: &Waiting, reply: Reply) {
        self.answer(waiting.link, waiting.ticket, reply, waiting.fate);
        if let Some(link) = self.links.get_mut(&waiting.link) {
            link.blocked = false;
            self.runnable.push_back(waiting.link);
        }
    }

    /// Serves the reads that wait for a key, after it changed.
    fn serve_waiting(&mut self, signal: &Signal) {
        for waiting in std::mem::take(&mut self.waiting) {
            let reply = if waiting.read.reads(&signal.key) { self.reply_to(&waiting.read, signal) } else { None };
            match reply {
                Some(reply) => self.unblock(&waiting, reply),
                None => self.waiting.push(waiting),
            }
        }
    }

    /// What a change means for a read that waits; `None` to let it wait.
    fn reply_to(&mut self, read: &Read, signal: &Signal) -> Option<Reply> {
        if self.db.profile.reruns_blocked() {
            let is_stream = matches!(self.db.keys.get(&signal.key), Some(Object::Stream(_)));
            if !is_stream && !read.is_grouped() {
                return None;
            }
            return match read.clone().start(&mut self.db) {
                Outcome::Reply(reply) => Some(reply),
                Outcome::Block(_) => None,
            };
        }
        match signal.change {
            Change::Stream => read.serve_waiting(&mut self.db, &signal.key),
            Change::Gone if self.db.profile >= Profile::Redis70 && read.is_grouped() => {
                Some(Err(error("UNBLOCKED the stream key no longer exists")))
            }
            Change::Gone => None,
        }
    }
}
