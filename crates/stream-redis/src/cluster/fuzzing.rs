//! The slots of a cluster, for fuzz targets.

use super::slots::{self, Node, Redirection, SlotMap};
use crate::{Error, ServerError, Value};

/// Who owns which slots, as one node says.
#[derive(Debug, Clone)]
pub struct Slots(SlotMap);

fn address(node: &Node) -> (String, u16) {
    (node.host.to_string(), node.port)
}

impl Slots {
    /// Reads the reply of the node `asked`.
    pub fn read(reply: &Value, asked: &str) -> Result<Self, Error> {
        SlotMap::read(reply, &Node::new(asked, 1)).map(Self)
    }

    /// The owner of a slot.
    pub fn owner(&self, slot: u16) -> Option<(String, u16)> {
        self.0.owner(slot).map(address)
    }

    /// All owners.
    pub fn nodes(&self) -> Vec<(String, u16)> {
        self.0.nodes().into_iter().map(address).collect()
    }

    /// The slot is somebody else's.
    pub fn moved(&mut self, slot: u16, host: &str, port: u16) {
        self.0.moved(slot, Node::new(host, port));
    }
}

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> u16 {
    slots::of(key)
}

/// Where an error leads: the slot where it is for good, and the node.
pub fn redirection(error: &ServerError, from: &str) -> Option<(Option<u16>, (String, u16))> {
    Some(match slots::redirection(error, &Node::new(from, 1))? {
        Redirection::Moved(slot, node) => (Some(slot), address(&node)),
        Redirection::Ask(node) => (None, address(&node)),
    })
}
