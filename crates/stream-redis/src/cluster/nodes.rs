//! [`Nodes`]: what is known of a cluster, and one command connection to each node that all streams share.
//!
//! What must stay true: no lock is held over a wait that another node's callers could feel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use stream_core::StreamKey;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::options::ClusterOptions;
use super::slots::{self, Node, Redirection, SlotMap};
use crate::command_connection::CommandConnection;
use crate::options::ConnectOptions;
use crate::transport::Stream;
use crate::{Error, ErrorKind, Request, Value, greeting, transport};

/// A map that was read this recently is not read again: a failover makes all consumers ask at once.
const FRESH: Duration = Duration::from_millis(200);

/// Between two looks while a slot is served by nobody. A failover or a migration takes seconds; a look costs little.
const PAUSE: Duration = Duration::from_millis(250);

/// So many nodes in a row may point to another one. More do so where a migration was left half done, each to the other.
const MOST_REDIRECTIONS: usize = 4;

/// A node is given this time at least to tell the map, however many there are.
const LEAST_SHARE: Duration = Duration::from_secs(1);

/// The place of the shared connection to one node, which lives as long as somebody uses it.
type Place = Arc<tokio::sync::Mutex<Shared>>;

#[derive(Default)]
struct Shared {
    connection: Weak<CommandConnection>,
    /// When it was last tried in vain, and why: those who waited for that meanwhile do not try again one after the other.
    failed: Option<(Instant, String, ErrorKind)>,
}

#[derive(Debug)]
pub(super) struct Nodes {
    options: ClusterOptions,
    state: Mutex<State>,
    /// Held by whoever reads the map, so that the others wait for it and not for the cluster.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    map: SlotMap,
    read_at: Option<Instant>,
    /// Where the next question about the map goes, so that one node that is mistaken is not asked for ever.
    turn: usize,
    places: HashMap<Node, Place>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("map", &self.map).finish_non_exhaustive()
    }
}

impl Nodes {
    pub(super) fn new(options: ClusterOptions) -> Self {
        Self { options, state: Mutex::default(), reading: tokio::sync::Mutex::default() }
    }

    pub(super) fn options(&self) -> &ConnectOptions {
        self.options.server()
    }

    /// The owner of a slot, as far as it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Node> {
        self.state().map.owner(slot).cloned()
    }

    /// Notes a slot's new owner.
    pub(super) fn moved(&self, slot: u16, node: Node) {
        let mut state = self.state();
        state.map.moved(slot, node);
        // There is more to learn: slots rarely move alone.
        state.read_at = None;
    }

    /// A stream of one's own to the owner of `key`'s slot, who has confirmed that it serves it. A failover or a migration
    /// that is under way is waited for, as long as a connection may take.
    pub(super) async fn open_owner(&self, key: &StreamKey, name: Option<&str>) -> Result<(Stream, Node), Error> {
        let limit = self.options().connect_timeout();
        let deadline = Instant::now() + limit;
        let slot = slots::of(key.as_bytes());
        let mut told = None;
        let mut redirections = 0;
        loop {
            let error = match timeout_at(deadline, self.attempt(key, slot, name, told.take())).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err((error, next))) => {
                    redirections = if next.is_some() { redirections + 1 } else { 0 };
                    told = next.filter(|_| redirections <= MOST_REDIRECTIONS);
                    error
                }
                Err(_) => {
                    let message = format!("finding the node that serves `{key}` took longer than {limit:?}");
                    return Err(Error::new(ErrorKind::Timeout, message));
                }
            };
            let pause = if told.is_some() { Duration::ZERO } else { PAUSE.mul_f64(0.5 + fastrand::f64()) };
            if !error.is_passing() || Instant::now() + pause >= deadline {
                return Err(error);
            }
            if !pause.is_zero() {
                redirections = 0;
            }
            sleep(pause).await;
        }
    }

    /// One try; with the error comes the node that another one pointed to.
    async fn attempt(
        &self,
        key: &StreamKey,
        slot: u16,
        name: Option<&str>,
        told: Option<Node>,
    ) -> Result<(Stream, Node), (Error, Option<Node>)> {
        let node = if let Some(node) = told {
            node
        } else {
            self.refresh().await.map_err(|error| (error, None))?;
            let nobody = || Error::new(ErrorKind::Busy, format!("no node of the cluster serves slot {slot}"));
            self.owner(slot).ok_or_else(|| (nobody(), None))?
        };
        let options = self.options().at(&node.host, node.port);
        let options = name.map_or_else(|| options.clone(), |name| options.named(name));
        let mut stream = transport::open(&options).await.map_err(|error| (error, None))?;
        let serves = [Request::new("EXISTS").key(key)];
        let asked = greeting::ask(&mut stream, &options, &serves);
        let late =
            |_| (Error::new(ErrorKind::Timeout, format!("{options} did not say whether it serves `{key}`")), None);
        let replies = timeout(options.response_timeout(), asked).await.map_err(late)?;
        match replies.map_err(|error| (error, None))?.pop() {
            Some(Value::Error(error)) => match slots::redirection(&error, &node) {
                Some(Redirection::Moved(slot, to)) => {
                    self.moved(slot, to.clone());
                    Err((Error::from_server(error), Some(to)))
                }
                // On its way: blocking there would not be told when it has arrived, so this is waited for.
                Some(Redirection::Ask(_)) => Err((Error::from_server(error), None)),
                None => match Error::from_server(error) {
                    // Who may not ask is told by the first command.
                    error if error.kind() == ErrorKind::NoPermission => Ok((stream, node)),
                    error => Err((error, None)),
                },
            },
            _ => Ok((stream, node)),
        }
    }

    /// Reads the map anew, unless that was just done.
    async fn refresh(&self) -> Result<(), Error> {
        let _reading = self.reading.lock().await;
        if self.state().read_at.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(());
        }
        let nodes = self.to_ask();
        let share = self.options().connect_timeout() / u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
        let share = share.max(LEAST_SHARE);
        let mut failed: Option<Error> = None;
        for node in nodes {
            let late = |_| Err(Error::new(ErrorKind::Timeout, "a node did not tell its slots in time"));
            match timeout(share, self.read_map(&node)).await.unwrap_or_else(late) {
                // What others knew is worth more.
                Ok(map) if map.is_empty() => {
                    failed = Some(Error::new(ErrorKind::Busy, "a node of the cluster knows of no slots"));
                }
                Ok(map) => {
                    let mut state = self.state();
                    state.map = map;
                    state.read_at = Some(Instant::now());
                    return Ok(());
                }
                // One that may pass says more than one that is final: that node is alone with it.
                Err(error) => failed = Some(failed.filter(Error::is_passing).unwrap_or(error)),
            }
        }
        Err(failed.unwrap_or_else(|| Error::new(ErrorKind::Moved, "no node of the cluster is known")))
    }

    async fn read_map(&self, node: &Node) -> Result<SlotMap, Error> {
        let options = self.options().at(&node.host, node.port);
        let mut stream = transport::open(&options).await?;
        let request = Request::new("CLUSTER SLOTS");
        match greeting::ask(&mut stream, &options, std::slice::from_ref(&request)).await?.pop() {
            Some(Value::Error(error)) => {
                let error = Error::from_server(error).at(request.command(), None);
                Err(if error.kind() == ErrorKind::Refused {
                    error.with_hint("is it a cluster? if not, the scheme is redis://")
                } else {
                    error
                })
            }
            Some(reply) => SlotMap::read(&reply, node),
            None => Err(Error::new(ErrorKind::Protocol, "no reply to a request")),
        }
    }

    /// Everybody who may know the map, beginning with another one each time.
    fn to_ask(&self) -> Vec<Node> {
        let mut state = self.state();
        let mut nodes: Vec<Node> = state.map.nodes().into_iter().cloned().collect();
        for seed in self.options.seeds() {
            if !nodes.contains(&seed) {
                nodes.push(seed);
            }
        }
        let turn = state.turn % nodes.len().max(1);
        state.turn = state.turn.wrapping_add(1);
        nodes.rotate_left(turn);
        nodes
    }

    /// The command connection to `node`, made if there is none.
    pub(super) async fn connection(&self, node: &Node) -> Result<Arc<CommandConnection>, Error> {
        let place = Arc::clone(self.state().places.entry(node.clone()).or_default());
        let asked = Instant::now();
        let mut place = place.lock().await;
        if let Some(connection) = place.connection.upgrade() {
            return Ok(connection);
        }
        if let Some((at, why, kind)) = &place.failed
            && *at > asked
        {
            return Err(Error::new(*kind, why.clone()));
        }
        let options = self.options().at(&node.host, node.port);
        let made = async { CommandConnection::new(transport::open(&options).await?, &options).await };
        match made.await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *place = Shared { connection: Arc::downgrade(&connection), failed: None };
                Ok(connection)
            }
            Err(error) => {
                place.failed = Some((Instant::now(), error.to_string(), error.kind()));
                Err(error)
            }
        }
    }

    /// Forgets a connection that failed, so that the next caller gets a new one.
    pub(super) async fn failed(&self, node: &Node, connection: &Arc<CommandConnection>) {
        let place = self.state().places.get(node).map(Arc::clone);
        if let Some(place) = place {
            let mut place = place.lock().await;
            if place.connection.upgrade().is_some_and(|held| Arc::ptr_eq(&held, connection)) {
                place.connection = Weak::new();
            }
        }
    }

    /// No invariant spans a panic while the lock is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
