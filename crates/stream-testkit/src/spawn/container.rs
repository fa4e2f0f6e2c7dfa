//! A server as a container: for machines that have a Docker engine and no server program, and where a node is to be cut off
//! from its network.

use std::error::Error;

use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::bollard::query_parameters::KillContainerOptionsBuilder;
use testcontainers_modules::testcontainers::core::IntoContainerPort;
use testcontainers_modules::testcontainers::runners::AsyncRunner;
use testcontainers_modules::testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::time::Instant;

use super::port::free_port;
use super::{Network, ServerOptions, SpawnError, is_ready, last_words};
use crate::engine as containers;
use crate::matrix::Flavor;
use crate::wait::pause;

/// The port inside of the container.
const INSIDE: u16 = 6379;

/// Where the server finds its configuration; the folder is the server's own in every image.
const CONFIG: &str = "/data/server.conf";

#[derive(Debug)]
pub(super) struct Container {
    container: ContainerAsync<GenericImage>,
    /// Declared after the container: a network goes only when nothing is in it.
    network: Option<Network>,
    host: String,
    port: u16,
}

impl Container {
    /// In a network, at an address and with a port of its own; without one, at a port of this machine.
    pub(super) async fn start(
        image: &str,
        tag: &str,
        flavor: Flavor,
        options: &ServerOptions,
        network: Option<&Network>,
    ) -> Result<Self, SpawnError> {
        if options.wants_unix_socket() {
            return Err(SpawnError::Containerized { wanted: "open a unix socket" });
        }
        containers::sweep_once(&engine()?).await;
        let mut command = vec![format!("{}-server", flavor.name())];
        command.extend(options.config_text().map(|_| CONFIG.to_owned()));
        command.extend(["--port", "6379", "--protected-mode", "no"].map(str::to_owned));
        command.extend(options.common_args());
        let (label, owner) = containers::label();
        let mut request = GenericImage::new(image, tag).with_cmd(command).with_label(label, owner);
        if let Some(text) = options.config_text() {
            request = request.with_copy_to(CONFIG, text.as_bytes().to_vec());
        }
        let (container, host, port) = if let Some(network) = network {
            let request = request.with_network(network.name());
            let request = request.with_host_config_modifier(|host| host.publish_all_ports = Some(false));
            let container = request.start().await.map_err(|error| failed("start a container", error))?;
            let host = network.address_of(container.id()).await?;
            (container, host, INSIDE)
        } else {
            // The port of the host is fixed because one that the engine chooses changes with a restart.
            let port = free_port().ok_or(SpawnError::NoPort { tries: 1 })?;
            let request = request.with_mapped_port(port, INSIDE.tcp());
            let container = request.start().await.map_err(|error| failed("start a container", error))?;
            let host = container.get_host().await.map_err(|error| failed("name its host", error))?.to_string();
            (container, host, port)
        };
        let this = Self { container, network: network.cloned(), host, port };
        this.until_ready(options).await?;
        Ok(this)
    }

    pub(super) fn place(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }

    /// By the engine's own kill: its stop asks the server first, and the server would save.
    pub(super) async fn kill9(&self) -> Result<(), SpawnError> {
        if !self.is_running().await? {
            return Ok(());
        }
        let options = KillContainerOptionsBuilder::default().signal("SIGKILL").build();
        let killed = engine()?.kill_container(self.container.id(), Some(options)).await;
        killed.map_err(|error| failed("kill", error))?;
        while self.is_running().await? {
            pause().await;
        }
        Ok(())
    }

    pub(super) async fn restart(&self, options: &ServerOptions) -> Result<(), SpawnError> {
        self.kill9().await?;
        if let Some(network) = &self.network {
            // One that starts is given any free address, unless it has asked for one; and it may have been cut off.
            let _ = network.disconnect(self.container.id()).await;
            network.connect(self.container.id(), &self.host).await?;
        }
        self.container.start().await.map_err(|error| failed("start the container again", error))?;
        self.until_ready(options).await
    }

    pub(super) async fn pause(&self) -> Result<(), SpawnError> {
        self.container.pause().await.map_err(|error| failed("pause the container", error))
    }

    pub(super) async fn resume(&self) -> Result<(), SpawnError> {
        self.container.unpause().await.map_err(|error| failed("resume the container", error))
    }

    pub(super) async fn cut_off(&self) -> Result<(), SpawnError> {
        let network = self.network.as_ref().ok_or(SpawnError::NoNetwork { wanted: "cut the server off" })?;
        network.disconnect(self.container.id()).await
    }

    pub(super) async fn rejoin(&self) -> Result<(), SpawnError> {
        let network = self.network.as_ref().ok_or(SpawnError::NoNetwork { wanted: "bring the server back" })?;
        network.connect(self.container.id(), &self.host).await
    }

    async fn is_running(&self) -> Result<bool, SpawnError> {
        self.container.is_running().await.map_err(|error| failed("look at the container", error))
    }

    async fn until_ready(&self, options: &ServerOptions) -> Result<(), SpawnError> {
        let deadline = Instant::now() + options.deadline();
        let what = || format!("container {}", self.container.id());
        loop {
            let answer = is_ready(&format!("{}:{}", self.host, self.port), options, None).await;
            if matches!(answer, Ok(true)) {
                return Ok(());
            }
            if !self.is_running().await? {
                let code = self.container.exit_code().await.ok().flatten();
                let status = code.map_or_else(|| "without a code".to_owned(), |code| format!("exit code {code}"));
                return Err(SpawnError::Ended { what: what(), status, log: self.last_words().await });
            }
            if Instant::now() >= deadline {
                let (waited, log, source) = (options.deadline(), self.last_words().await, answer.err());
                return Err(SpawnError::NotReady { what: what(), waited, log, source });
            }
            pause().await;
        }
    }

    async fn last_words(&self) -> String {
        let mut log = self.container.stdout_to_vec().await.unwrap_or_default();
        log.extend(self.container.stderr_to_vec().await.unwrap_or_default());
        last_words(&String::from_utf8_lossy(&log))
    }
}

pub(super) fn failed(action: &'static str, source: impl Error + Send + Sync + 'static) -> SpawnError {
    SpawnError::Engine { action, source: Box::new(source) }
}

pub(super) fn engine() -> Result<Docker, SpawnError> {
    Docker::connect_with_local_defaults().map_err(|error| failed("be reached", error))
}
