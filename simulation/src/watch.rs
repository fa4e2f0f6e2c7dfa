//! [`Watch`]: what a command did to the server, seen from outside: entries that came to be, owners that changed.
//!
//! The judge of a history sees what handlers and publishers saw. Here is what only the server can know, and what is wrong the
//! moment it happens: an entry taken from an owner whose lease was not over, acknowledged or started by who does not own it.

use std::collections::BTreeMap;

use stream_core::{DeadLetter, Entry, EntryId};
use stream_redis::{Request, Value};
use stream_testkit::history::What;

use crate::machine::Machine;
use crate::mutation::{Mutation, script};
use crate::plan::{DEAD, STREAM};
use crate::world::World;

/// Who owns what in a group, and for how many milliseconds it was left alone.
type Owners = BTreeMap<EntryId, (String, u64)>;

/// What is looked at before a command and after it.
pub(crate) struct Watch {
    owners: Option<Owners>,
    adds: bool,
}

impl Watch {
    /// These requests leave; the machine made them when it was `asked`.
    pub(crate) fn before(machine: &Machine, requests: &[Request], asked: u64) -> Self {
        let world = &*machine.world;
        let (mut owns, mut adds) = (false, false);
        for request in requests {
            let args: Vec<&[u8]> = request.args().collect();
            world.detail(format_args!("command {} {}", machine.name, told(&args)));
            match request.command() {
                "XAUTOCLAIM" | "XCLAIM" | "XACK" => owns = true,
                "EVALSHA" | "EVAL" => {
                    let name = script(&args);
                    owns |= matches!(name, Some("renew" | "take" | "hand_back"));
                    adds |= name == Some("dead_letter");
                }
                "XADD" => adds = true,
                _ => {}
            }
        }
        let owners = machine.group.filter(|_| owns).map(|group| owners(world, group));
        // Between the look at the clock and the write lies a moment in which a process can be stopped: no client can tell. What
        // it acknowledges then it has handled.
        if let (Some(owners), Some(group), false) = (&owners, machine.group, machine.froze_since(asked)) {
            for request in requests.iter().filter(|request| request.command() == "XACK") {
                acknowledges(machine, group, request, owners);
            }
        }
        Self { owners, adds }
    }

    pub(crate) fn after(self, machine: &Machine, requests: &[Request]) {
        let world = &*machine.world;
        if let (Some(before), Some(group)) = (&self.owners, machine.group) {
            changed_hands(world, group, before, &owners(world, group), machine, requests);
        }
        if self.adds {
            notice(world, machine.group.is_none() && machine.name.starts_with("redrive"));
        }
    }
}

/// A machine acknowledges: nothing that somebody else owns by now.
fn acknowledges(machine: &Machine, group: usize, request: &Request, owners: &Owners) {
    let world = &*machine.world;
    for id in request.args().skip(3).filter_map(|id| EntryId::parse(id).ok()) {
        if let Some((owner, _)) = owners.get(&id)
            && *owner != machine.name
            && !lost_lately(world, group)
        {
            world.violation(format!("{} acknowledges {id}, which {owner} owns", machine.name));
        }
    }
}

fn changed_hands(
    world: &World,
    group: usize,
    before: &Owners,
    after: &Owners,
    machine: &Machine,
    requests: &[Request],
) {
    let lease = u64::try_from(world.plan.lease.as_millis()).unwrap_or(u64::MAX);
    for (id, (owner, _)) in after {
        let Some((from, idle)) = before.get(id).filter(|(from, _)| from != owner) else { continue };
        world.detail(format_args!("handed {id} from {from} to {owner} after {idle} ms"));
        world.state().done.remove(&(group, *id));
        if *idle < lease {
            let command = requests.first().map_or("", Request::command);
            world.violation(format!(
                "{} took {id} from {from} by {command}, {idle} ms after its lease of {lease} ms had begun",
                machine.name
            ));
        }
    }
}

/// A handler starts: on an entry that its process owns, and has not handled before.
pub(crate) fn starts(machine: &Machine, group: usize, id: EntryId) {
    let world = &*machine.world;
    let lost = lost_lately(world, group);
    let owner = owner(world, group, id);
    if owner.as_deref() != Some(machine.name.as_str()) && !lost {
        let owner = owner.as_deref().unwrap_or("nobody");
        world.violation(format!("{} starts {id}, which {owner} owns", machine.name));
    }
    let done = world.state().done.get(&(group, id)).copied();
    if done == Some(machine.number) && !lost {
        world.violation(format!("{} starts {id} again, which it has handled and never lost", machine.name));
    }
}

/// A handler has returned well: what its process owns then does not come to it again.
pub(crate) fn handled(machine: &Machine, group: usize, id: EntryId) {
    let world = &*machine.world;
    // Where the server has forgotten that it delivered the entry, it will do so once more; and who finds its stream fallen
    // back forgets what it was about to acknowledge.
    if !lost_lately(world, group) && owner(world, group, id).as_deref() == Some(machine.name.as_str()) {
        world.state().done.insert((group, id), machine.number);
    }
}

/// Whether the group was lost so shortly ago that not every process may know.
fn lost_lately(world: &World, group: usize) -> bool {
    lost_since(world, group, world.now())
}

/// Whether the group was lost since then, or so shortly before that not every process knew.
pub(crate) fn lost_since(world: &World, group: usize, then: u64) -> bool {
    let unaware = u64::try_from((world.plan.lease * 3 + world.plan.block).as_micros()).unwrap_or(u64::MAX);
    world.state().known.losses.iter().any(|(which, at)| *which == group && then < at.saturating_add(unaware))
}

fn owners(world: &World, group: usize) -> Owners {
    let pending = world.server.pending(STREAM, &world.plan.groups[group]);
    pending.into_iter().map(|(id, owner, idle, _)| (id, (owner, idle.as_millis() as u64))).collect()
}

fn owner(world: &World, group: usize, id: EntryId) -> Option<String> {
    let id = id.to_string();
    let args = ["XPENDING", STREAM, &world.plan.groups[group], &id, &id, "1"];
    let Ok(Value::Array(rows)) = world.server.command(args) else { return None };
    let Some(Value::Array(row)) = rows.into_iter().next() else { return None };
    row.get(1).and_then(Value::as_bytes).map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Entries came with a read.
pub(crate) fn read(machine: &Machine, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    let world = &*machine.world;
    let ids: Vec<String> = entries.iter().map(|entry| entry.id().to_string()).collect();
    world.detail(format_args!("read {} {}", machine.name, ids.join(" ")));
    if let (Some(Mutation::AcknowledgeFirst), Some(group)) = (world.mutation, machine.group) {
        let command = ["XACK", STREAM, &world.plan.groups[group]].into_iter().chain(ids.iter().map(String::as_str));
        let _ = world.server.command(command);
    }
}

/// Requests got no answer: nobody knows whether the messages in them arrived.
pub(crate) fn got_no_answer(machine: &Machine, requests: &[Request]) {
    for request in requests.iter().filter(|request| request.command() == "XADD") {
        let args: Vec<&[u8]> = request.args().collect();
        let at = args.iter().position(|arg| *arg == b"n");
        if let Some(number) = at.and_then(|at| number_in(args.get(at + 1)?)) {
            machine.world.unconfirmed(number);
        }
    }
}

fn number_in(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Takes in what was added to the stream and to the dead letters.
fn notice(world: &World, again: bool) {
    let last = world.state().known.last;
    for entry in added(world, STREAM, last) {
        let Some(number) = entry.get("n").and_then(number_in) else { continue };
        let known = {
            let mut state = world.state();
            state.known.last = entry.id();
            state.known.entries.insert(entry.id(), number);
            state.known.messages.get(&number).copied()
        };
        let Some(message) = known else {
            world.violation(format!("message {number} was sent by nobody"));
            continue;
        };
        if again {
            world.unconfirmed(number);
        }
        let (entry, key, fate) = (entry.id(), world.plan.lanes.then_some(message.key), message.kind.fate());
        world.happened_to_all(&What::Published { entry, number, key, fate });
    }
    let last = world.state().known.last_letter;
    for entry in added(world, DEAD, last) {
        world.state().known.last_letter = entry.id();
        match DeadLetter::from_entry(&entry) {
            Ok(letter) => {
                world.note(format_args!(
                    "letter {} of {} by {} in {} after {} attempts: {}",
                    entry.id(),
                    letter.entry.id(),
                    letter.consumer,
                    letter.group,
                    letter.attempts,
                    letter.reason.as_str()
                ));
                world.state().known.letters.insert(entry.id(), letter);
            }
            Err(error) => world.violation(format!("a dead letter cannot be read: {error}")),
        }
    }
}

fn added(world: &World, key: &str, after: EntryId) -> Vec<Entry> {
    let from = format!("{}", after.successor().unwrap_or(after));
    let Ok(Value::Array(rows)) = world.server.command(["XRANGE", key, &from, "+"]) else { return Vec::new() };
    rows.into_iter().filter_map(entry).collect()
}

fn entry(row: Value) -> Option<Entry> {
    let Value::Array(parts) = row else { return None };
    let [id, Value::Array(fields)] = &parts[..] else { return None };
    let id = EntryId::parse(id.as_bytes()?).ok()?;
    let pairs = fields.as_chunks::<2>().0.iter();
    Entry::new(id, pairs.map(|[name, value]| (name.as_bytes().unwrap_or(b""), value.as_bytes().unwrap_or(b"")))).ok()
}

/// A command as one line.
fn told(args: &[&[u8]]) -> String {
    let mut words: Vec<String> = args.iter().take(24).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
    if let (Some(name), Some(word)) = (script(args), words.get_mut(1)) {
        name.clone_into(word);
    }
    if let Some(load) = words.get_mut(2).filter(|text| text.len() > 200) {
        "...".clone_into(load);
    }
    words.join(" ")
}
