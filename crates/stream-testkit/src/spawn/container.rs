//! A server as a container, for machines that have a Docker engine and no server program.

use std::error::Error;

use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::bollard::query_parameters::KillContainerOptionsBuilder;
use testcontainers_modules::testcontainers::core::IntoContainerPort;
use testcontainers_modules::testcontainers::runners::AsyncRunner;
use testcontainers_modules::testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::time::Instant;

use super::port::free_port;
use super::{ServerOptions, SpawnError, is_ready};
use crate::matrix::Flavor;
use crate::wait::pause;

/// The port inside of the container.
const INSIDE: u16 = 6379;

#[derive(Debug)]
pub(super) struct Container {
    container: ContainerAsync<GenericImage>,
}

impl Container {
    pub(super) async fn start(
        image: &str,
        tag: &str,
        flavor: Flavor,
        options: &ServerOptions,
    ) -> Result<(Self, String, u16), SpawnError> {
        if options.wants_unix_socket() {
            return Err(SpawnError::Containerized { wanted: "open a unix socket" });
        }
        // The port of the host is fixed because one that the engine chooses changes with a restart.
        let port = free_port().ok_or(SpawnError::NoPort { tries: 1 })?;
        let program = format!("{}-server", flavor.name());
        let mut command = vec![program, "--protected-mode".to_owned(), "no".to_owned()];
        command.extend(options.common_args());
        let request = GenericImage::new(image, tag).with_mapped_port(port, INSIDE.tcp()).with_cmd(command);
        let container = request.start().await.map_err(|error| failed("start a container", error))?;
        let host = container.get_host().await.map_err(|error| failed("name its host", error))?.to_string();
        let this = Self { container };
        this.until_ready(&host, port, options).await?;
        Ok((this, host, port))
    }

    /// By the engine's own kill: its stop asks the server first, and the server would save.
    pub(super) async fn kill9(&self) -> Result<(), SpawnError> {
        if !self.container.is_running().await.map_err(|error| failed("look at the container", error))? {
            return Ok(());
        }
        let engine = Docker::connect_with_local_defaults().map_err(|error| failed("be reached", error))?;
        let options = KillContainerOptionsBuilder::default().signal("SIGKILL").build();
        engine.kill_container(self.container.id(), Some(options)).await.map_err(|error| failed("kill", error))?;
        while self.container.is_running().await.map_err(|error| failed("look at the container", error))? {
            pause().await;
        }
        Ok(())
    }

    pub(super) async fn restart(&self, host: &str, port: u16, options: &ServerOptions) -> Result<(), SpawnError> {
        self.kill9().await?;
        self.container.start().await.map_err(|error| failed("start the container again", error))?;
        self.until_ready(host, port, options).await
    }

    pub(super) async fn pause(&self) -> Result<(), SpawnError> {
        self.container.pause().await.map_err(|error| failed("pause the container", error))
    }

    pub(super) async fn resume(&self) -> Result<(), SpawnError> {
        self.container.unpause().await.map_err(|error| failed("resume the container", error))
    }

    async fn until_ready(&self, host: &str, port: u16, options: &ServerOptions) -> Result<(), SpawnError> {
        let deadline = Instant::now() + options.deadline();
        loop {
            match is_ready(&format!("{host}:{port}"), options, None).await {
                Ok(true) => return Ok(()),
                answer if Instant::now() >= deadline => {
                    return Err(SpawnError::NotReady {
                        what: format!("container {}", self.container.id()),
                        waited: options.deadline(),
                        log: String::new(),
                        source: answer.err(),
                    });
                }
                _ => pause().await,
            }
        }
    }
}

fn failed(action: &'static str, source: impl Error + Send + Sync + 'static) -> SpawnError {
    SpawnError::Engine { action, source: Box::new(source) }
}
