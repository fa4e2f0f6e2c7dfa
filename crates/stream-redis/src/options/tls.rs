//! [`TlsOptions`]: whom to trust and who to be. Certificates are checked unless that is turned off by a name that says so.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme, version,
};

use super::config;
use crate::Error;

/// PEM text: in a file or in memory.
#[derive(Clone)]
#[non_exhaustive]
pub enum Pem {
    /// Read when the options are made and again for every connection, so that a renewed certificate is taken up without
    /// a restart.
    File(PathBuf),
    /// The text itself.
    Text(Arc<[u8]>),
}

impl Pem {
    /// A file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into())
    }

    /// The text itself.
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().into())
    }

    /// The text, and what to call it in an error.
    fn read(&self, what: &str) -> Result<(Vec<u8>, String), Error> {
        match self {
            Self::Text(text) => Ok((text.to_vec(), format!("the {what}"))),
            Self::File(path) => {
                let name = format!("the {what} {}", path.display());
                let text = std::fs::read(path).map_err(|e| config(format!("cannot read {name}")).with_source(e))?;
                Ok((text, name))
            }
        }
    }
}

impl fmt::Debug for Pem {
    /// Never the text: it may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(***)"),
        }
    }
}

/// How to encrypt a connection: whose certificates to trust, and which one to show.
///
/// The default trusts the certificates of the system and shows none.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TlsOptions {
    authorities: Option<Pem>,
    certificate: Option<Pem>,
    key: Option<Pem>,
    server_name: Option<String>,
    accept_invalid: bool,
}

impl TlsOptions {
    /// The default: the certificates of the system are trusted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these authorities instead of the system's.
    pub fn authorities(mut self, pem: Pem) -> Self {
        self.authorities = Some(pem);
        self
    }

    /// Shows this certificate (with its chain) to the server, and proves it with this private key.
    pub fn client_certificate(mut self, certificate: Pem, key: Pem) -> Self {
        self.certificate = Some(certificate);
        self.key = Some(key);
        self
    }

    /// The name that the server's certificate must be for, where it is not the host of the address, as behind a tunnel.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Accepts any certificate: expired, of another host, of nobody. Whoever is on the path can then read and change
    /// everything, the password included. For a test on one's own machine.
    pub fn danger_accept_invalid_certificates(mut self) -> Self {
        self.accept_invalid = true;
        self
    }

    /// One parameter of a URL.
    pub(super) fn set(mut self, name: &str, value: String) -> Result<Self, Error> {
        match name {
            "tls_ca_file" => self.authorities = Some(Pem::file(value)),
            "tls_certificate_file" => self.certificate = Some(Pem::file(value)),
            "tls_key_file" => self.key = Some(Pem::file(value)),
            "tls_server_name" => self.server_name = Some(value),
            "danger_accept_invalid_certificates" if value == "true" => self.accept_invalid = true,
            _ => return Err(config(format!("{name}=`{value}` in the URL: only `true` can be given"))),
        }
        Ok(self)
    }

    /// The name to check the server's certificate against.
    pub(crate) fn name_of(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = self.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned())
            .map_err(|e| config(format!("`{name}` is not a name that a certificate can be for")).with_source(e))
    }

    /// What rustls needs, read anew. Does file I/O.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(|e| config("TLS 1.2 and 1.3 are not available").with_source(e))?;
        let builder = if self.accept_invalid {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(provider)))
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate, "client certificate")?;
                let (text, name) = key.read("private key")?;
                // The cause is left out: it would describe the key.
                let key = PrivateKeyDer::from_pem_slice(&text)
                    .map_err(|_| config(format!("{name} holds no private key in PEM form")))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|e| config("the client certificate and its private key cannot be used").with_source(e))?
            }
            (Some(_), None) => return Err(config("a client certificate needs its private key: give tls_key_file")),
            (None, Some(_)) => {
                return Err(config("a private key needs its client certificate: give tls_certificate_file"));
            }
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, Error> {
        let Some(authorities) = &self.authorities else { return system_roots() };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities, "file of authorities")? {
            roots
                .add(certificate)
                .map_err(|e| config("a certificate among the authorities cannot be used").with_source(e))?;
        }
        Ok(Arc::new(roots))
    }
}

fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let (text, name) = pem.read(what)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|e| config(format!("{name} is not valid PEM")).with_source(e))?;
    if found.is_empty() {
        return Err(config(format!("{name} holds no certificate in PEM form")));
    }
    Ok(found)
}

/// The certificates that the system trusts. Reading them takes many milliseconds, so it is done once.
fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let error = config("the system has no certificates to trust: install them or give tls_ca_file");
        return Err(match found.errors.into_iter().next() {
            Some(cause) => error.with_source(cause),
            None => error,
        });
    }
    Ok(ROOTS.get_or_init(|| Arc::new(roots)).clone())
}

/// Accepts any certificate, but not a forged signature of the handshake.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
