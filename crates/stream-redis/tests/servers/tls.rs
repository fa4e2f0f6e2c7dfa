//! TLS: who is trusted, who is refused, and what a mix-up of ports says. The same through sentinels.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use stream_redis::{
    Client, ConnectOptions, ConnectOptionsBuilder, CredentialProvider, Credentials, Error, ErrorKind, Pem, Request,
    SentinelOptions, TlsOptions, Value,
};
use stream_testkit::{RealServer, ServerBinary, ServerOptions, SpawnError};

use crate::every_server::{key, on_every_binary};

/// What every connection may take here.
const LIMIT: Duration = Duration::from_secs(3);

/// An authority, certificates for `localhost` (one that is good and one that has expired) and one for a client.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(this.file("ca.pem"), authority.pem()).unwrap();
        for (name, host) in [("server", "localhost"), ("expired", "localhost"), ("client", "client")] {
            let key = KeyPair::generate().unwrap();
            let mut certificate = CertificateParams::new([host.to_owned()]).unwrap();
            if name == "expired" {
                certificate.not_before = date_time_ymd(2019, 1, 1);
                certificate.not_after = date_time_ymd(2020, 1, 1);
            }
            let certificate = certificate.signed_by(&key, &authority).unwrap();
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

    /// Whom a client trusts that knows the authority.
    fn trusted(&self) -> TlsOptions {
        TlsOptions::new().authorities(Pem::file(self.file("ca.pem")))
    }

    /// The same for `localhost`, whatever the address is.
    pub(crate) fn localhost(&self) -> TlsOptions {
        self.trusted().server_name("localhost")
    }

    /// A server with a TLS port, or `None`, and said, where it is built without TLS.
    async fn serve(&self, binary: &ServerBinary, clients: &str) -> Option<(RealServer, u16)> {
        self.serve_as(binary, "server", clients, ServerOptions::new()).await
    }

    /// The same with the certificate `name`.
    pub(crate) async fn serve_as(
        &self,
        binary: &ServerBinary,
        name: &str,
        clients: &str,
        options: ServerOptions,
    ) -> Option<(RealServer, u16)> {
        let files = [("cert", format!("{name}.pem")), ("key", format!("{name}.key")), ("ca-cert", "ca.pem".to_owned())];
        let files = files.iter().flat_map(|(option, name)| [format!("--tls-{option}-file"), self.text(name)]);
        let options = options.args(files).args(["--tls-auth-clients", clients]);
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

    /// A sentinel with a TLS port that names the server at `port`.
    async fn watch(&self, binary: &ServerBinary, name: &str, clients: &str, port: u16) -> (RealServer, u16) {
        let config = format!("sentinel monitor main 127.0.0.1 {port} 1\n");
        let options = ServerOptions::new().config(config).arg("--sentinel").args(["--tls-replication", "yes"]);
        self.serve_as(binary, name, clients, options).await.expect("a server of the same binary has TLS")
    }
}

/// A client of the master that the sentinel at `port` names.
fn through(port: u16, sentinel: Option<TlsOptions>, server: Option<TlsOptions>) -> Client {
    let build = |port, tls: Option<TlsOptions>| {
        let builder = ConnectOptions::tcp("127.0.0.1", port).connect_timeout(LIMIT);
        tls.into_iter().fold(builder, ConnectOptionsBuilder::tls).build().unwrap()
    };
    Client::from_sentinel(SentinelOptions::new("main", [build(port, sentinel)], build(1, server)).unwrap())
}

/// Tells the password of the moment.
#[derive(Debug, Clone)]
pub(crate) struct Rotating(pub(crate) Arc<Mutex<&'static str>>);

#[async_trait::async_trait]
impl CredentialProvider for Rotating {
    async fn credentials(&self) -> Result<Credentials, Error> {
        Ok(Credentials::password(*self.0.lock().unwrap()))
    }
}

/// What servers that are built without TLS say when they are started with it: Redis, Valkey 9.
const WITHOUT_TLS: [&str; 3] = [">>> 'tls-cert-file", ">>> 'tls-cluster", "Failed finding TLS support"];

async fn check(options: ConnectOptions) {
    check_client(&Client::from_options(options)).await;
}

async fn check_client(client: &Client) {
    let connection = client.connector().connect(&key()).await.unwrap();
    assert_eq!(connection.call(&Request::new("XLEN").arg("s")).await.unwrap(), Value::Int(0));
}

async fn check_refused(options: ConnectOptions, kind: ErrorKind, words: &str) {
    check_refused_as(options, &[kind], words).await;
}

async fn check_refused_as(options: ConnectOptions, kinds: &[ErrorKind], words: &str) {
    let what = options.to_string();
    check_client_refused(&Client::from_options(options), kinds, words, &what).await;
}

/// One clear error, and no later than a connection may take.
async fn check_client_refused(client: &Client, kinds: &[ErrorKind], words: &str, what: &str) {
    let began = Instant::now();
    let Err(error) = client.connector().connect(&key()).await else { panic!("{what}") };
    // The default limit of those that set none, and what a busy machine needs beyond that.
    assert!(began.elapsed() < Duration::from_secs(5 + 5), "{what}: {:?}", began.elapsed());
    assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(text.contains(words), "{what}: {text}");
}

/// A port that accepts and never says anything.
async fn silent() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let hold = async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    };
    (port, tokio::spawn(hold))
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
        check_refused(to(authorities()), ErrorKind::Tls, "ask for a client certificate?").await;
    })
    .await;
}

#[tokio::test]
async fn an_expired_certificate_and_a_handshake_without_end_are_refused_in_time() {
    let certificates = Certificates::new();
    let (port, held) = silent().await;
    let silent = ConnectOptions::tcp("localhost", port).connect_timeout(Duration::from_secs(1));
    let silent = silent.tls(certificates.trusted()).build().unwrap();
    check_refused(silent, ErrorKind::Timeout, "the TLS handshake with").await;
    on_every_binary(async |binary| {
        let expired = certificates.serve_as(&binary, "expired", "no", ServerOptions::new()).await;
        let Some((_server, port)) = expired else { return };
        let options = ConnectOptions::tcp("localhost", port).tls(certificates.trusted()).build().unwrap();
        check_refused(options, ErrorKind::Tls, "expired").await;
    })
    .await;
    held.abort();
}

#[tokio::test]
async fn sentinels_and_their_master_are_held_to_the_same() {
    let certificates = Certificates::new();
    let good = || Some(certificates.localhost());
    on_every_binary(async |binary| {
        let Some((_server, master)) = certificates.serve(&binary, "no").await else { return };
        let (_sentinel, sentinel) = certificates.watch(&binary, "server", "no", master).await;
        check_client(&through(sentinel, good(), good())).await;
        let refused = |place: &str| format!("{place} of sentinels on {}", binary.name());
        let nobody = || Some(TlsOptions::new().server_name("localhost"));
        for (client, words, what) in [
            (through(sentinel, nobody(), good()), "is not accepted", "wrong authority"),
            (through(sentinel, good(), nobody()), "is not accepted", "wrong authority at the master"),
            (through(sentinel, Some(certificates.trusted()), good()), "certificate of 127.0.0.1", "wrong name"),
            (through(sentinel, good(), Some(certificates.trusted())), "certificate of 127.0.0.1", "master's name"),
        ] {
            check_client_refused(&client, &[ErrorKind::Tls], words, &refused(what)).await;
        }
        // The wrong port may be one that is about to be served, so it is tried for as long as a connection may take.
        let plain = [ErrorKind::Io, ErrorKind::Timeout];
        let wants = "does that port want TLS? then the scheme is rediss://";
        check_client_refused(&through(sentinel, None, good()), &plain, wants, &refused("plain text")).await;
        check_client_refused(&through(sentinel, good(), None), &plain, wants, &refused("plain text at the master"))
            .await;

        let (_sentinel, expired) = certificates.watch(&binary, "expired", "no", master).await;
        check_client_refused(&through(expired, good(), good()), &[ErrorKind::Tls], "expired", &refused("expired"))
            .await;
        let (_sentinel, asks) = certificates.watch(&binary, "server", "yes", master).await;
        let asked = "ask for a client certificate?";
        check_client_refused(&through(asks, good(), good()), &[ErrorKind::Tls], asked, &refused("no certificate"))
            .await;
        let file = |name: &str| Pem::file(certificates.file(name));
        let shown = certificates.localhost().client_certificate(file("client.pem"), file("client.key"));
        check_client(&through(asks, Some(shown), good())).await;

        let late = [ErrorKind::Timeout];
        let handshake = "the TLS handshake with";
        let (port, held) = silent().await;
        check_client_refused(&through(port, good(), good()), &late, handshake, &refused("no end of it")).await;
        let (_sentinel, names) = certificates.watch(&binary, "server", "no", port).await;
        check_client_refused(&through(names, good(), good()), &late, handshake, &refused("no end at the master")).await;
        held.abort();
    })
    .await;
}

#[tokio::test]
async fn a_rotated_password_is_used_for_the_next_connection_also_through_sentinels() {
    let certificates = Certificates::new();
    on_every_binary(async |binary| {
        let Some((server, master)) = certificates.serve(&binary, "no").await else { return };
        let (_sentinel, port) = certificates.watch(&binary, "server", "no", master).await;
        let mut admin = server.connect().await.unwrap();
        let provider = Rotating(Arc::new(Mutex::new("first")));
        let builder = |port| ConnectOptions::tcp("localhost", port).tls(certificates.localhost());
        let server = builder(master).credentials(provider.clone()).build().unwrap();
        let sentinel = builder(port).build().unwrap();
        let watched = Client::from_sentinel(SentinelOptions::new("main", [sentinel], server.clone()).unwrap());
        let clients = [Client::from_options(server), watched];
        for password in ["first", "second"] {
            admin.command(&["CONFIG", "SET", "requirepass", password]).await.unwrap();
            if password == "second" {
                for client in &clients {
                    let what = format!("the old password on {}", binary.name());
                    check_client_refused(client, &[ErrorKind::Authentication], "WRONGPASS", &what).await;
                }
            }
            *provider.0.lock().unwrap() = password;
            for client in &clients {
                check_client(client).await;
            }
        }
    })
    .await;
}
