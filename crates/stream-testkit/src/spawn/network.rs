//! [`Network`]: a network of a Docker engine, for containers that reach each other at addresses of their own.
//!
//! A node keeps its address for as long as the network is there, also when it was cut off, or killed and started again:
//! what other nodes and clients know of it stays true. This machine reaches the addresses as well, through the engine's
//! bridge, so nothing is mapped to a port of the host, and a node that is cut off is silent: no connection to it is reset
//! or refused, as where a cable is pulled.

use std::collections::HashMap;
use std::sync::Arc;

use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::bollard::models::{
    EndpointIpamConfig, EndpointSettings, Ipam, IpamConfig, NetworkConnectRequest, NetworkCreateRequest,
    NetworkDisconnectRequest,
};
use tokio::time::timeout;

use super::SpawnError;
use super::container::{engine, failed};
use crate::engine as containers;
use crate::engine::{ANSWER, block_on};
use crate::matrix::{ServerBinary, Source};

/// Others may take the addresses that the engine has just proposed.
const TRIES: usize = 10;

/// A network of containers. Clones are the same; it is removed with the last of them and of the servers in it.
#[derive(Debug, Clone)]
pub struct Network(Arc<Made>);

#[derive(Debug)]
struct Made {
    name: String,
}

impl Network {
    /// A network for servers like `binary`, or nothing if they are not containers.
    ///
    /// # Errors
    /// [`SpawnError::Engine`]: the engine makes none.
    pub async fn of(binary: &ServerBinary) -> Result<Option<Self>, SpawnError> {
        match binary.source {
            Source::Image { .. } => Self::create().await.map(Some),
            Source::Program(_) | Source::External(_) => Ok(None),
        }
    }

    /// An engine lets a container choose its address only where the network was made with a range that is written down. So
    /// the engine is asked which one is free, and that is written down.
    async fn create() -> Result<Self, SpawnError> {
        let docker = engine()?;
        containers::sweep_once(&docker).await;
        let name = format!("streamkeeper-{:016x}", fastrand::u64(..));
        let mut refused = None;
        for _ in 0..TRIES {
            let free = make(&docker, &name, None).await?;
            let ipam = docker.inspect_network(&name, None).await.map(|network| network.ipam);
            drop(free);
            let ipam = ipam.map_err(|error| failed("look at a network", error))?;
            let subnet = ipam.and_then(|ipam| ipam.config?.into_iter().next()?.subnet);
            match make(&docker, &name, subnet).await {
                Ok(made) => return Ok(Self(Arc::new(made))),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or(SpawnError::NoNetwork { wanted: "make a network" }))
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) async fn address_of(&self, container: &str) -> Result<String, SpawnError> {
        let seen = engine()?.inspect_container(container, None).await;
        let settings = seen.map_err(|error| failed("look at the container", error))?.network_settings;
        let networks = settings.and_then(|settings| settings.networks).unwrap_or_default();
        let address = networks.get(self.name()).and_then(|end| end.ip_address.clone());
        address.filter(|address| !address.is_empty()).ok_or(SpawnError::NoNetwork { wanted: "tell its address" })
    }

    pub(super) async fn disconnect(&self, container: &str) -> Result<(), SpawnError> {
        let request = NetworkDisconnectRequest { container: container.to_owned(), force: Some(false) };
        let done = engine()?.disconnect_network(self.name(), request).await;
        done.map_err(|error| failed("disconnect the container", error))
    }

    pub(super) async fn connect(&self, container: &str, address: &str) -> Result<(), SpawnError> {
        let ipam = EndpointIpamConfig { ipv4_address: Some(address.to_owned()), ..Default::default() };
        let end = EndpointSettings { ipam_config: Some(ipam), ..Default::default() };
        let request = NetworkConnectRequest { container: container.to_owned(), endpoint_config: Some(end) };
        let done = engine()?.connect_network(self.name(), request).await;
        done.map_err(|error| failed("connect the container", error))
    }
}

async fn make(docker: &Docker, name: &str, subnet: Option<String>) -> Result<Made, SpawnError> {
    let range = |subnet| Ipam {
        config: Some(vec![IpamConfig { subnet: Some(subnet), ..Default::default() }]),
        ..Default::default()
    };
    let request = NetworkCreateRequest {
        name: name.to_owned(),
        labels: Some(HashMap::from([containers::label()])),
        ipam: subnet.map(range),
        ..Default::default()
    };
    docker.create_network(request).await.map_err(|error| failed("make a network", error))?;
    Ok(Made { name: name.to_owned() })
}

impl Drop for Made {
    fn drop(&mut self) {
        // What is left in spite of it is removed by the next process that makes a network.
        let _ = block_on(async {
            let docker = Docker::connect_with_local_defaults().ok()?;
            timeout(ANSWER * 3, docker.remove_network(&self.name)).await.ok()?.ok()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remove_leftovers;

    /// The engine of this machine.
    async fn answers() -> Option<Docker> {
        containers::engine().await.inspect_err(|why| eprintln!("NOT run: {why}")).ok()
    }

    #[tokio::test]
    async fn a_network_ends_with_the_last_of_its_clones() {
        let Some(docker) = answers().await else { return };
        let network = Network::create().await.unwrap();
        let (name, clone) = (network.name().to_owned(), network.clone());
        drop(network);
        let range = docker.inspect_network(&name, None).await.unwrap().ipam.unwrap().config.unwrap();
        assert!(range[0].subnet.is_some(), "without a range nobody can choose an address");
        drop(clone);
        assert!(docker.inspect_network(&name, None).await.is_err());
    }

    #[tokio::test]
    async fn what_a_process_that_died_has_left_is_removed_and_nothing_else() {
        let Some(docker) = answers().await else { return };
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (label, this) = containers::label();
        let theirs = this.replace(&format!(":{}:", std::process::id()), &format!(":{}:", ended.id()));
        let name = format!("streamkeeper-{:016x}", fastrand::u64(..));
        let labels = Some(HashMap::from([(label, theirs)]));
        docker.create_network(NetworkCreateRequest { name: name.clone(), labels, ..Default::default() }).await.unwrap();
        let ours = Network::create().await.unwrap();
        remove_leftovers().unwrap();
        assert!(docker.inspect_network(&name, None).await.is_err());
        assert!(docker.inspect_network(ours.name(), None).await.is_ok());
    }
}
