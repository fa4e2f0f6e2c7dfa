//! [`ClusterConnection`]: the commands of one stream, and of what belongs to it in other slots.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::nodes::Nodes;
use super::slots::{self, Node, Redirection};
use crate::command_connection::CommandConnection;
use crate::{Connection, Error, ErrorKind, Recovery, Request, ServerError, Value};

/// Redirections that are followed before the caller is told: a slot that moves on meanwhile.
const MOST_REDIRECTIONS: usize = 4;

type Reply = Result<Value, ServerError>;

pub(super) struct ClusterConnection {
    nodes: Arc<Nodes>,
    /// The slot for commands without a key.
    slot: u16,
    /// Keeps the connections that were used alive; they are shared with the connections of other streams.
    used: Mutex<Vec<(Node, Arc<CommandConnection>)>>,
    home: Node,
}

/// Where a request goes next.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    node: Node,
    asking: bool,
}

impl ClusterConnection {
    pub(super) fn new(nodes: Arc<Nodes>, slot: u16, home: Node) -> Self {
        Self { nodes, slot, used: Mutex::default(), home }
    }

    fn way(&self, request: &Request) -> Way {
        let slot = request.stream().map_or(self.slot, |key| slots::of(key.as_bytes()));
        Way { node: self.nodes.owner(slot).unwrap_or_else(|| self.home.clone()), asking: false }
    }

    /// A node that is away and does not serve the stream itself is no reason to leave this connection: whatever is about the
    /// stream goes on, and what goes to the other slot is tried again.
    async fn send_to(&self, way: &Way, requests: &[Request]) -> Result<Vec<Reply>, Error> {
        let result = self.try_to(way, requests).await;
        let is_own = self.nodes.owner(self.slot).is_none_or(|owner| owner == way.node);
        match result {
            Err(error) if !is_own && error.recovery() == Recovery::Reconnect => {
                let message =
                    format!("the node of another slot, {}:{}, cannot be reached", way.node.host, way.node.port);
                Err(Error::new(ErrorKind::Busy, message).with_source(error))
            }
            result => result,
        }
    }

    async fn try_to(&self, way: &Way, requests: &[Request]) -> Result<Vec<Reply>, Error> {
        let connection = self.connection(&way.node).await?;
        let result = if way.asking {
            let asking = requests.iter().flat_map(|request| [Request::new("ASKING"), request.clone()]);
            let replies = connection.send(&asking.collect::<Vec<_>>()).await;
            replies.map(|replies| replies.into_iter().skip(1).step_by(2).collect())
        } else {
            connection.send(requests).await
        };
        if result.is_err() {
            self.used().retain(|(_, used)| !Arc::ptr_eq(used, &connection));
            self.nodes.failed(&way.node, &connection).await;
        }
        result
    }

    async fn connection(&self, node: &Node) -> Result<Arc<CommandConnection>, Error> {
        let used = self.used().iter().find(|(known, _)| known == node).map(|(_, used)| Arc::clone(used));
        if let Some(connection) = used {
            return Ok(connection);
        }
        let connection = self.nodes.connection(node).await?;
        let mut used = self.used();
        used.retain(|(known, _)| known != node);
        used.push((node.clone(), Arc::clone(&connection)));
        Ok(connection)
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Vec<(Node, Arc<CommandConnection>)>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Connection for ClusterConnection {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Reply>, Error> {
        let ways: Vec<Way> = requests.iter().map(|request| self.way(request)).collect();
        if let Some(first) = ways.first()
            && ways.iter().all(|way| way == first)
        {
            // As nearly always: one node, nothing to take apart.
            let replies = self.send_to(first, requests).await?;
            if !replies.iter().any(|reply| leads_on(reply, &first.node)) {
                return Ok(replies);
            }
            let replies = replies.into_iter().map(Some).collect();
            return self.follow(requests, ways, replies).await;
        }
        let replies = requests.iter().map(|_| None).collect();
        self.follow(requests, ways, replies).await
    }
}

impl ClusterConnection {
    /// Sends what has no reply yet, and again what was not carried out where it was sent.
    async fn follow(
        &self,
        requests: &[Request],
        mut ways: Vec<Way>,
        mut replies: Vec<Option<Reply>>,
    ) -> Result<Vec<Reply>, Error> {
        for _ in 0..=MOST_REDIRECTIONS {
            for (place, reply) in replies.iter_mut().enumerate() {
                let Some(Err(error)) = reply else { continue };
                match slots::redirection(error, &ways[place].node) {
                    Some(Redirection::Moved(slot, node)) => {
                        self.nodes.moved(slot, node.clone());
                        ways[place] = Way { node, asking: false };
                        *reply = None;
                    }
                    Some(Redirection::Ask(node)) => {
                        ways[place] = Way { node, asking: true };
                        *reply = None;
                    }
                    None => {}
                }
            }
            while let Some(first) = replies.iter().position(Option::is_none) {
                let way = ways[first].clone();
                let places: Vec<usize> =
                    (first..requests.len()).filter(|&place| replies[place].is_none() && ways[place] == way).collect();
                let part: Vec<Request> = places.iter().map(|&place| requests[place].clone()).collect();
                for (place, reply) in places.iter().zip(self.send_to(&way, &part).await?) {
                    replies[*place] = Some(reply);
                }
                if places.iter().any(|&place| replies[place].is_none()) {
                    return Err(Error::new(ErrorKind::Protocol, "no reply to a request"));
                }
            }
            let led_on = replies
                .iter()
                .zip(&ways)
                .any(|(reply, way)| reply.as_ref().is_some_and(|reply| leads_on(reply, &way.node)));
            if !led_on {
                break;
            }
        }
        Ok(replies.into_iter().flatten().collect())
    }
}

fn leads_on(reply: &Reply, from: &Node) -> bool {
    reply.as_ref().is_err_and(|error| slots::redirection(error, from).is_some())
}
