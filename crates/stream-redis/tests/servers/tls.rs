//! TLS: who is trusted, who is refused, and what a mix-up of ports says.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use stream_redis::{Client, ConnectOptions, ErrorKind, Pem, Request, TlsOptions, Value};
use stream_testkit::{RealServer, ServerBinary, ServerOptions, SpawnError};

use crate::every_server::{key, on_every_binary};

/// An authority, a certificate for `localhost` and one for a client.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(this.file("ca.pem"), authority.pem()).unwrap();
        for (name, host) in [("server", "localhost"), ("client", "client")] {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
            std::fs::write(this.file(&format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(this.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        this
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    /// A server with a TLS port, or `None`, and said, where it is built without TLS.
    async fn serve(&self, binary: &ServerBinary, clients: &str) -> Option<(RealServer, u16)> {
        let files = [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem")];
        let files = files.into_iter().flat_map(|(option, name)| [format!("--tls-{option}-file"), self.text(name)]);
        let options = ServerOptions::new().args(files).args(["--tls-auth-clients", clients]);
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let options = options.clone().args(["--tls-port", &port.to_string()]);
            match RealServer::start(binary, &options).await {
                Ok(server) => return Some((server, port)),
                // Somebody else has taken the port.
                Err(SpawnError::NoPort { .. }) => {}
                Err(SpawnError::Ended { log, .. }) if WITHOUT_TLS.iter().any(|words| log.contains(words)) => {
                    eprintln!("not tested: {} is built without TLS", binary.name());
                    return None;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// What servers that are built without TLS say when they are started with it: Redis, Valkey 9.
const WITHOUT_TLS: [&str; 2] = [">>> 'tls-cert-file", "Failed finding TLS support"];

async fn check(options: ConnectOptions) {
    let connection = Client::from_options(options).connector().connect(&key()).await.unwrap();
    assert_eq!(connection.call(&Request::new("XLEN").arg("s")).await.unwrap(), Value::Int(0));
}

async fn check_refused(options: ConnectOptions, kind: ErrorKind, words: &str) {
    check_refused_as(options, &[kind], words).await;
}

async fn check_refused_as(options: ConnectOptions, kinds: &[ErrorKind], words: &str) {
    let name = options.to_string();
    let connector = Client::from_options(options);
    let Err(error) = connector.connector().connect(&key()).await else { panic!("{name}") };
    assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
    assert!(error.to_string().contains(words), "{name}: {error:?}");
}

#[tokio::test]
async fn encrypted_connections() {
    let certificates = Certificates::new();
    let authorities = || TlsOptions::new().authorities(Pem::file(certificates.file("ca.pem")));
    on_every_binary(async |binary| {
        let Some((server, port)) = certificates.serve(&binary, "no").await else { return };
        let to = |host: &str, tls: TlsOptions| ConnectOptions::tcp(host, port).tls(tls).build().unwrap();
        for protocol in ["resp2", "resp3"] {
            let ca = certificates.text("ca.pem");
            let url = format!("rediss://localhost:{port}?tls_ca_file={ca}&protocol={protocol}");
            check(ConnectOptions::from_url(&url).unwrap()).await;
        }
        check(to("127.0.0.1", authorities().server_name("localhost"))).await;
        check(to("127.0.0.1", TlsOptions::new().danger_accept_invalid_certificates())).await;
        let text = std::fs::read(certificates.file("ca.pem")).unwrap();
        check(to("localhost", TlsOptions::new().authorities(Pem::text(text)))).await;

        check_refused(to("127.0.0.1", authorities()), ErrorKind::Tls, "certificate of 127.0.0.1").await;
        check_refused(to("localhost", TlsOptions::new()), ErrorKind::Tls, "is not accepted").await;
        // The wrong port, both ways round. Servers reset the connection instead of answering with an alert.
        let plain = ConnectOptions::tcp("localhost", port).build().unwrap();
        check_refused(plain, ErrorKind::Io, "does that port want TLS? then the scheme is rediss://").await;
        // A server without TLS takes the handshake for an unfinished line, unless a newline happens to be in it.
        let encrypted = ConnectOptions::tcp("localhost", server.port()).tls(authorities());
        let encrypted = encrypted.connect_timeout(Duration::from_secs(1)).build().unwrap();
        check_refused_as(encrypted, &[ErrorKind::Timeout, ErrorKind::Tls], "the scheme is redis://").await;
    })
    .await;
}

#[tokio::test]
async fn servers_that_ask_for_a_certificate() {
    let certificates = Certificates::new();
    on_every_binary(async |binary| {
        let Some((_server, port)) = certificates.serve(&binary, "yes").await else { return };
        let authorities = || TlsOptions::new().authorities(Pem::file(certificates.file("ca.pem")));
        let to = |tls: TlsOptions| ConnectOptions::tcp("localhost", port).tls(tls).build().unwrap();
        let file = |name: &str| Pem::file(certificates.file(name));
        check(to(authorities().client_certificate(file("client.pem"), file("client.key")))).await;
        check_refused(to(authorities()), ErrorKind::Tls, "").await;
    })
    .await;
}
