//! TLS: who is trusted, who is refused, and what a mix-up of ports says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stream_core::StreamKey;
use stream_redis::{Client, ConnectOptions, ErrorKind, Pem, Request, TlsOptions, Value};

use crate::support::{Server, free_port, servers};

/// An authority, a certificate for `localhost` and one for a client.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        this.openssl(&[
            &["req", "-x509", "-days", "2", "-subj", "/CN=authority"],
            &key[..],
            &["-keyout", "ca.key", "-out", "ca.pem"],
        ]);
        for (name, alternative) in [("server", "DNS:localhost"), ("client", "DNS:client")] {
            let (request, pem) = (format!("{name}.csr"), format!("{name}.pem"));
            let keyfile = format!("{name}.key");
            this.openssl(&[&["req", "-subj", "/CN=name"], &key[..], &["-keyout", &keyfile, "-out", &request]]);
            std::fs::write(this.0.path().join("ext"), format!("subjectAltName={alternative}\n")).unwrap();
            this.openssl(&[
                &["x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"],
                &["-in", &request, "-out", &pem, "-extfile", "ext"],
            ]);
        }
        this
    }

    fn openssl(&self, args: &[&[&str]]) {
        let output = Command::new("openssl").args(args.concat()).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    /// A server with a TLS port, or `None` where it is built without TLS.
    fn serve(&self, folder: &Path, clients: &str) -> Option<(Server, u16)> {
        let port = free_port();
        let (cert, key, ca) = (self.text("server.pem"), self.text("server.key"), self.text("ca.pem"));
        let server = Server::try_start(
            folder,
            &[
                "--tls-port",
                &port.to_string(),
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
                "--tls-ca-cert-file",
                &ca,
                "--tls-auth-clients",
                clients,
            ],
        )?;
        Some((server, port))
    }
}

async fn check(options: ConnectOptions) {
    let connection = Client::from_options(options).connector().connect(&StreamKey::new("s").unwrap()).await.unwrap();
    assert_eq!(connection.call(&Request::new("XLEN").arg("s")).await.unwrap(), Value::Int(0));
}

async fn check_refused(options: ConnectOptions, kind: ErrorKind, words: &str) {
    check_refused_as(options, &[kind], words).await;
}

async fn check_refused_as(options: ConnectOptions, kinds: &[ErrorKind], words: &str) {
    let name = options.to_string();
    let connector = Client::from_options(options);
    let Err(error) = connector.connector().connect(&StreamKey::new("s").unwrap()).await else { panic!("{name}") };
    assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
    assert!(error.to_string().contains(words), "{name}: {error:?}");
}

#[tokio::test]
async fn encrypted_connections() {
    let certificates = Certificates::new();
    let authorities = || TlsOptions::new().authorities(Pem::file(certificates.file("ca.pem")));
    let mut seen = 0;
    for folder in servers() {
        let Some((server, port)) = certificates.serve(&folder, "no") else { continue };
        seen += 1;
        eprintln!("TLS against {}", server.name);
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
        let encrypted = ConnectOptions::tcp("localhost", server.port).tls(authorities());
        let encrypted = encrypted.connect_timeout(Duration::from_millis(300)).build().unwrap();
        check_refused_as(encrypted, &[ErrorKind::Timeout, ErrorKind::Tls], "the scheme is redis://").await;
    }
    assert!(seen > 0 || servers().is_empty(), "none of the servers has TLS");
}

#[tokio::test]
async fn servers_that_ask_for_a_certificate() {
    let certificates = Certificates::new();
    for folder in servers() {
        let Some((_server, port)) = certificates.serve(&folder, "yes") else { continue };
        let authorities = || TlsOptions::new().authorities(Pem::file(certificates.file("ca.pem")));
        let to = |tls: TlsOptions| ConnectOptions::tcp("localhost", port).tls(tls).build().unwrap();
        let file = |name: &str| Pem::file(certificates.file(name));
        check(to(authorities().client_certificate(file("client.pem"), file("client.key")))).await;
        check_refused(to(authorities()), ErrorKind::Tls, "").await;
    }
}
