//! [`CredentialProvider`]: user and password that change while a process runs.

use std::fmt;

use async_trait::async_trait;

use crate::Error;

/// Who a connection says it is. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// A password of the server's default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }

    /// An ACL user with a password.
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    pub(crate) fn into_parts(self) -> (Option<String>, String) {
        (self.user, self.password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Tells user and password anew for every connection: a secret that is rotated, a token that expires.
///
/// Connections that are open are not closed when the secret changes; a server that closes them, or that is left by them
/// for any other reason, is greeted with what the provider says then. It is asked under the connect timeout.
///
/// ```
/// use stream_redis::{ConnectOptions, CredentialProvider, Credentials, Error, ErrorKind};
///
/// #[derive(Debug)]
/// struct SecretFile(std::path::PathBuf);
///
/// #[async_trait::async_trait]
/// impl CredentialProvider for SecretFile {
///     async fn credentials(&self) -> Result<Credentials, Error> {
///         let secret = tokio::fs::read_to_string(&self.0).await.map_err(|cause| {
///             Error::new(ErrorKind::Io, "cannot read the file with the password").with_source(cause)
///         })?;
///         Ok(Credentials::user("billing", secret.trim()))
///     }
/// }
///
/// let options = ConnectOptions::tcp("db.internal", 6379).credentials(SecretFile("/run/secrets/redis".into())).build()?;
/// # Ok::<(), Error>(())
/// ```
#[async_trait]
pub trait CredentialProvider: fmt::Debug + Send + Sync + 'static {
    /// User and password of this moment.
    ///
    /// # Errors
    /// They cannot be told. [`ErrorKind::Io`](crate::ErrorKind::Io) and
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) are tried again, other kinds end what needed the connection.
    async fn credentials(&self) -> Result<Credentials, Error>;
}
