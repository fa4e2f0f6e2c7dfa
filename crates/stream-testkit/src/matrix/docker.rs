//! Servers of a Docker engine, and the little asynchronous work that finding servers takes.
//!
//! Looking must be quick where no engine is, so every question has a deadline of its own.

use std::time::Duration;

use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::runners::AsyncRunner;
use testcontainers_modules::testcontainers::{GenericImage, ImageExt};
use tokio::time::timeout;

use super::surroundings::Fetch;
use super::{ExternalServer, Flavor, MATRIX, MatrixError, ServerBinary, ServerVersion, Source, parse_info};
use crate::engine::{ANSWER, block_on, engine};
use crate::{Cli, CliError};

/// An image is 10 to 50 MB.
const PULL: Duration = Duration::from_mins(2);

/// Images that hold `redis-8.0` or `valkey-8.1`, as `(image, tag)`: the official one first.
fn candidates(name: &str) -> Vec<(&'static str, &str)> {
    match name.split_once('-') {
        Some(("redis", tag)) => vec![("redis", tag)],
        Some(("valkey", tag)) => vec![("valkey/valkey", tag), ("valkey", tag)],
        _ => Vec::new(),
    }
}

/// The servers of the matrix whose images the engine has already, oldest first.
pub(super) fn present() -> Result<Vec<ServerBinary>, String> {
    block_on(async {
        let engine = engine().await?;
        let mut servers = Vec::new();
        for name in MATRIX {
            servers.extend(image_of(&engine, name).await);
        }
        servers.sort_by_key(ServerBinary::version);
        Ok(servers)
    })
}

/// The server called `name`, pulled if the engine does not have it and `fetch` allows that.
pub(super) fn get(name: &str, fetch: Fetch) -> Result<ServerBinary, String> {
    block_on(async {
        let engine = engine().await?;
        if let Some(server) = image_of(&engine, name).await {
            return Ok(server);
        }
        let (image, tag) = candidates(name).into_iter().next().ok_or("no image is known by that name")?;
        if fetch < Fetch::Download {
            return Err(format!("the engine has no {image}:{tag}"));
        }
        match timeout(PULL, GenericImage::new(image, tag).with_tag(tag).pull_image()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(format!("could not pull {image}:{tag}: {error}")),
            Err(_) => return Err(format!("could not pull {image}:{tag} within {PULL:?}")),
        }
        image_of(&engine, name).await.ok_or_else(|| format!("{image}:{tag} was pulled and is not there"))
    })
}

/// Asks the server that `REDIS_URL` names what it is.
pub(super) fn external(server: ExternalServer) -> Result<ServerBinary, MatrixError> {
    let asked: Result<_, CliError> = block_on(async {
        let mut cli = Cli::connect(&server.address(), server.credentials()).await?;
        let info = cli.command(&["INFO", "server"]).await?;
        parse_info(&info).ok_or_else(|| CliError::Protocol("INFO names no version".to_owned()))
    });
    match asked {
        Ok((flavor, version)) => Ok(ServerBinary::new(None, Source::External(server), flavor, version)),
        Err(source) => Err(MatrixError::External { address: server.address(), source }),
    }
}

async fn image_of(engine: &Docker, name: &str) -> Option<ServerBinary> {
    for (image, tag) in candidates(name) {
        let reference = format!("{image}:{tag}");
        if let Ok(Ok(_)) = timeout(ANSWER, engine.inspect_image(&reference)).await {
            let flavor = if image.starts_with("valkey") { Flavor::Valkey } else { Flavor::Redis };
            let version = ServerVersion::parse(tag)?;
            let source = Source::Image { image: image.to_owned(), tag: tag.to_owned() };
            return Some(ServerBinary::new(Some(name), source, flavor, version));
        }
    }
    None
}
