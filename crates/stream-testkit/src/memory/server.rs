//! [`MemoryServer`]: the model's public face: what a test does to the server and asks it directly.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stream_core::{Entry, EntryId};
use stream_redis::{Client, ServerError, Value};

use super::db::{Db, Object};
use super::fault::Fault;
use super::profile::Profile;
use super::reply::Reply;
use super::state::{Shared, State};
use super::stream::Stream;

/// A server of streams in memory. Clones are the same server.
///
/// Its clock is [`tokio::time::Instant`], and starts at 1 700 000 000 000 ms when the server is first used.
#[derive(Clone)]
pub struct MemoryServer {
    shared: Arc<Shared>,
}

/// What a server holds at one moment; see [`MemoryServer::snapshot`].
#[derive(Debug, Clone)]
pub struct Snapshot(BTreeMap<Bytes, Object>);

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (profile, keys) = self.shared.with(|state| (state.db.profile, state.db.keys.len()));
        f.debug_struct("MemoryServer").field("profile", &profile).field("keys", &keys).finish_non_exhaustive()
    }
}

impl MemoryServer {
    /// An empty server that behaves like the newest generation.
    pub fn new() -> Self {
        Self::with_profile(Profile::default())
    }

    /// An empty server that behaves like `profile`.
    pub fn with_profile(profile: Profile) -> Self {
        Self { shared: Arc::new(Shared::new(profile)) }
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        Client::from_connector(self.clone())
    }

    /// Adds an entry with an id from the server's clock.
    ///
    /// # Panics
    /// When the key holds a string, or `fields` is empty.
    pub fn add<N, V>(&self, key: impl AsRef<[u8]>, fields: impl IntoIterator<Item = (N, V)>) -> EntryId
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let reply = self.append(key.as_ref(), b"*", fields);
        let id = reply.as_ref().ok().and_then(Value::as_bytes).and_then(|id| EntryId::parse(id).ok());
        id.unwrap_or_else(|| panic!("an entry can be added to the stream: {reply:?}"))
    }

    /// Adds an entry with an id of one's own.
    ///
    /// # Errors
    /// As `XADD`: when the id is not greater than all before, or the key holds a string.
    pub fn add_at<N, V>(
        &self,
        key: impl AsRef<[u8]>,
        id: EntryId,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<(), ServerError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.append(key.as_ref(), id.to_string().as_bytes(), fields).map(drop)
    }

    fn append<N, V>(&self, key: &[u8], id: &[u8], fields: impl IntoIterator<Item = (N, V)>) -> Reply
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut args: Vec<Bytes> = [b"XADD", key, id].map(Bytes::copy_from_slice).into();
        for (name, value) in fields {
            args.push(Bytes::copy_from_slice(name.as_ref()));
            args.push(Bytes::copy_from_slice(value.as_ref()));
        }
        self.shared.with(|state| state.run_directly(&args))
    }

    /// Carries out any command, without counting it and untouched by faults.
    ///
    /// # Errors
    /// The server's error reply.
    pub fn command<A: AsRef<[u8]>>(&self, args: impl IntoIterator<Item = A>) -> Result<Value, ServerError> {
        let args: Vec<Bytes> = args.into_iter().map(|arg| Bytes::copy_from_slice(arg.as_ref())).collect();
        self.shared.with(|state| state.run_directly(&args))
    }

    /// Deletes a key; false when there is none.
    pub fn delete_key(&self, key: impl AsRef<[u8]>) -> bool {
        self.shared.with(|state| state.db.remove(&Bytes::copy_from_slice(key.as_ref())))
    }

    /// Puts a string at the key, so that it is of the wrong type for streams.
    pub fn set_string(&self, key: impl AsRef<[u8]>) {
        let key = Bytes::copy_from_slice(key.as_ref());
        self.shared.with(|state| state.db.set_text(&key, Bytes::from_static(b"text"), None));
    }

    /// Deletes all keys.
    pub fn flush_all(&self) {
        let _ = self.command(["FLUSHALL"]);
    }

    /// Deletes entries; returns how many there were.
    pub fn xdel(&self, key: impl AsRef<[u8]>, ids: &[EntryId]) -> usize {
        let delete = |stream: &mut Stream| ids.iter().filter(|&&id| stream.delete(id)).count();
        self.shared.with(|state| state.db.stream_mut(key.as_ref()).ok().flatten().map_or(0, delete))
    }

    /// Destroys a group; false when there is none. Readers that wait in it are told.
    pub fn destroy_group(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> bool {
        self.command([b"XGROUP", b"DESTROY".as_slice(), key.as_ref(), group.as_ref()]) == Ok(Value::Int(1))
    }

    /// How many entries the stream has; 0 when there is none.
    pub fn len(&self, key: impl AsRef<[u8]>) -> usize {
        self.stream(key.as_ref(), |stream| stream.entries.len()).unwrap_or(0)
    }

    /// Whether there is no entry in the stream.
    pub fn is_empty(&self, key: impl AsRef<[u8]>) -> bool {
        self.len(key) == 0
    }

    /// All entries of a stream, oldest first.
    pub fn entries(&self, key: impl AsRef<[u8]>) -> Vec<Entry> {
        let entry = |(id, fields): (&EntryId, &Vec<Bytes>)| {
            let (pairs, _) = fields.as_chunks::<2>();
            Entry::new(*id, pairs.iter().map(|[name, value]| (name, value))).ok()
        };
        self.stream(key.as_ref(), |stream| stream.entries.iter().filter_map(entry).collect()).unwrap_or_default()
    }

    /// What a group has delivered and not got acknowledged: id, consumer, time since the delivery, number of deliveries.
    pub fn pending(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Vec<(EntryId, String, Duration, u64)> {
        self.shared.with(|state| {
            let Db { now, .. } = state.db;
            let group = state.db.group(key.as_ref(), group.as_ref()).ok().flatten();
            let row = |(id, pending): (&EntryId, &super::group::Pending)| {
                let consumer = String::from_utf8_lossy(&pending.consumer).into_owned();
                let idle = Duration::from_millis(u64::try_from(now - pending.delivered_at).unwrap_or(0));
                (*id, consumer, idle, u64::try_from(pending.deliveries).unwrap_or(0))
            };
            group.map_or_else(Vec::new, |group| group.pending.iter().map(row).collect())
        })
    }

    /// The id up to which a group has delivered entries; `None` when there is no such group.
    pub fn group_last_delivered(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Option<EntryId> {
        self.stream(key.as_ref(), |stream| stream.groups.get(group.as_ref()).map(|group| group.last_id)).flatten()
    }

    /// The consumers of a group.
    pub fn consumers(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Vec<String> {
        let names = |stream: &Stream| {
            let group = stream.groups.get(group.as_ref());
            group.map(|group| group.consumers.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
        };
        self.stream(key.as_ref(), names).flatten().unwrap_or_default()
    }

    /// The groups of a stream.
    pub fn groups(&self, key: impl AsRef<[u8]>) -> Vec<String> {
        let names = |stream: &Stream| {
            stream.groups.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        self.stream(key.as_ref(), names).unwrap_or_default()
    }

    /// How often each command was carried out or refused, by its name in capitals: `XADD`, `XGROUP CREATE`,
    /// `EVALSHA RENEW`; `CONNECT` counts connections that were asked for. What a script calls is not
    /// counted by itself.
    pub fn commands(&self) -> BTreeMap<String, u64> {
        self.shared.with(|state| state.counts.clone())
    }

    /// How often one command was carried out or refused.
    pub fn count(&self, command: &str) -> u64 {
        self.shared.with(|state| state.counts.get(&command.to_ascii_uppercase()).copied().unwrap_or(0))
    }

    /// How many connections and readers are open.
    pub fn open_connections(&self) -> usize {
        self.shared.with(|state| state.links.values().filter(|link| !link.closed).count())
    }

    /// The names that open readers gave themselves.
    pub fn reader_names(&self) -> Vec<String> {
        self.shared.with(|state| {
            state.links.values().filter(|link| !link.closed).filter_map(|link| link.name.clone()).collect()
        })
    }

    /// Reads that wait for an entry now.
    pub fn blocked_readers(&self) -> usize {
        self.shared.with(|state| state.links.values().filter(|link| link.blocked && !link.closed).count())
    }

    /// Closes every connection and reader: what they do fails with [`ErrorKind::Io`](stream_redis::ErrorKind::Io), and
    /// replies that were on their way are lost. New connections can be opened.
    pub fn kill_connections(&self) {
        self.shared.with(|state| state.kill(|_| true));
    }

    /// Closes the readers only.
    pub fn kill_readers(&self) {
        self.shared.with(|state| state.kill(|link| link.name.is_some()));
    }

    /// Refuses new connections while `down`. Those that are open stay so; see [`kill_connections`](Self::kill_connections).
    pub fn set_down(&self, down: bool) {
        self.shared.with(|state| state.down = down);
    }

    /// Ends every waiting read with an error, for example `UNBLOCKED force unblock from blocking operation, instance
    /// state changed (master -> replica?)`.
    pub fn unblock_readers(&self, error: &ServerError) {
        self.shared.with(|state| state.unblock_all(&Err(error.clone())));
    }

    /// Every reply takes this long to arrive; none by default.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.with(|state| state.latency = latency);
    }

    /// After this time without an answer, connections and readers (for these, plus the time a read may block) fail with
    /// [`ErrorKind::Timeout`](stream_redis::ErrorKind::Timeout), as those to a real server do. Never by default.
    pub fn set_response_timeout(&self, timeout: Option<Duration>) {
        self.shared.with(|state| state.response_timeout = timeout);
    }

    /// Readers hand out replies in pieces of at most that many entries; whole by default.
    pub fn set_chunk(&self, entries: Option<usize>) {
        self.shared.with(|state| state.chunk = entries.filter(|&entries| entries > 0));
    }

    /// Makes the next command called `command` go wrong. Each call is for one command, in the order of the calls.
    ///
    /// `command` is a name as in [`commands`](Self::commands), in any case; `XGROUP` means all its subcommands, `RENEW`
    /// the script however it is called, `*` any command, and `CONNECT` opening a connection.
    pub fn fail_next(&self, command: &str, fault: Fault) {
        self.shared.with(|state| state.faults.add(command, fault, true));
    }

    /// Makes every command called `command` go wrong, until [`clear_faults`](Self::clear_faults).
    pub fn fail_always(&self, command: &str, fault: Fault) {
        self.shared.with(|state| state.faults.add(command, fault, false));
    }

    /// Asks `choose`, for every command that no other fault was made for, whether it goes wrong and how, until
    /// [`clear_faults`](Self::clear_faults). It is given the name as in [`commands`](Self::commands), in the order in which
    /// commands are carried out, and must not use the server.
    pub fn choose_faults(&self, choose: impl FnMut(&str) -> Option<Fault> + Send + 'static) {
        self.shared.with(|state| state.faults.choose(Box::new(choose)));
    }

    /// All that the server would find again if it was killed now and had written everything to its disk.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.with(|state| Snapshot(state.db.keys.clone()))
    }

    /// Kills the server and starts it again with what `snapshot` holds: what came after that is lost, as with an append-only
    /// file whose tail was not written yet. All connections are closed, and scripts are forgotten.
    ///
    /// ```
    /// let server = stream_testkit::MemoryServer::new();
    /// server.add("orders", [("item", "apple")]);
    /// let written = server.snapshot();
    /// server.add("orders", [("item", "pear")]);
    /// server.restart_from(written);
    /// assert_eq!(server.len("orders"), 1);
    /// ```
    pub fn restart_from(&self, snapshot: Snapshot) {
        self.shared.with(|state| {
            state.kill(|_| true);
            state.db.keys = snapshot.0;
            state.db.scripts.clear();
            state.db.signals.clear();
        });
    }

    /// Sets the server's clock forward, as an administrator or a failover to another machine does: what it measures by it is
    /// older at once, and nobody has waited.
    pub fn set_clock_forward(&self, by: Duration) {
        self.shared.with(|state| state.clock_ahead += by);
    }

    /// Forbids a command, as an access control list does: it fails with the profile's `NOPERM` text, and inside of
    /// scripts as it does there.
    pub fn deny(&self, command: &str) {
        self.shared.with(|state| state.db.denied.push(command.to_ascii_uppercase()));
    }

    /// Forgets all faults and allows all commands. A connection that hangs goes on hanging.
    pub fn clear_faults(&self) {
        self.shared.with(|state| {
            state.faults.clear();
            state.db.denied.clear();
        });
    }

    /// Forgets the scripts, as a restart or a failover does: the next `EVALSHA` fails with `NOSCRIPT`.
    pub fn forget_scripts(&self) {
        self.shared.with(|state| state.db.scripts.clear());
    }

    /// Calls `observer` with the arguments of every command that arrives, before it is carried out. It may use the
    /// server, for example to change something at exactly that moment.
    pub fn on_command(&self, observer: impl Fn(&[&[u8]]) + Send + Sync + 'static) {
        self.shared.with(|state| state.observers.push(Arc::new(observer)));
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn stream<T>(&self, key: &[u8], look: impl FnOnce(&Stream) -> T) -> Option<T> {
        self.shared.with(|state: &mut State| match state.db.keys.get(key) {
            Some(Object::Stream(stream)) => Some(look(stream)),
            _ => None,
        })
    }
}
