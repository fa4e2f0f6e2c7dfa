//! Real servers for tests, and a connection to them that is as small as can be.
//!
//! The servers are those in the folder that `STREAMKEEPER_SERVERS` names, laid out as `NAME/redis-server`. A missing
//! folder fails the test: a suite that quietly did nothing would prove nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use stream_redis::{Connection, Error, ErrorKind, Request, ServerError, Value};

/// A server of its own, ended when dropped.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) port: u16,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts the server in `folder` and waits until it says that it is ready.
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        // Somebody else may take a port between its choice and its use.
        (0..5)
            .find_map(|_| Self::try_start(folder, options))
            .unwrap_or_else(|| panic!("{} ended again and again before it was ready", folder.display()))
    }

    fn try_start(folder: &Path, options: &[&str]) -> Option<Self> {
        let data = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut child = Command::new(folder.join("redis-server"))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
            .arg("--dir")
            .arg(data.path())
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if !lines.by_ref().any(|line| line.unwrap().contains("eady to accept connections")) {
            child.wait().unwrap();
            return None;
        }
        // Nobody reads the log from here on; the pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        Some(Self { name, port, child, _folder: data })
    }

    pub(crate) fn connect(&self) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire(Mutex::new(BufReader::new(stream)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A free port whose neighbour 10000 above, which a cluster node takes too, exists.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < 55_000 {
            return port;
        }
    }
}

/// The folders of all servers, in the order of their names.
pub(crate) fn folders() -> Vec<PathBuf> {
    let root = std::env::var_os("STREAMKEEPER_SERVERS").expect(
        "STREAMKEEPER_SERVERS is not set: point it at a folder of servers laid out as NAME/redis-server, of which this \
         suite tests every one",
    );
    let mut folders: Vec<_> = std::fs::read_dir(&root)
        .unwrap_or_else(|error| panic!("STREAMKEEPER_SERVERS={}: {error}", root.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|folder| folder.join("redis-server").is_file())
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "STREAMKEEPER_SERVERS={} holds no NAME/redis-server", root.display());
    folders
}

/// Runs `test` on a fresh server of each kind.
pub(crate) async fn on_every_server(options: &[&str], test: impl AsyncFn(&Server, Wire)) {
    for folder in folders() {
        let server = Server::start(&folder, options);
        eprintln!("on {}", server.name);
        test(&server, server.connect()).await;
    }
}

/// A connection that sends and waits, without any of what a real one needs.
pub(crate) struct Wire(Mutex<BufReader<TcpStream>>);

impl Wire {
    /// Runs a command given as words and insists on success.
    pub(crate) fn ok(&self, words: &str) -> Value {
        self.raw(words).unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// Runs a command given as words.
    pub(crate) fn raw(&self, words: &str) -> Result<Value, ServerError> {
        let parts: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        self.raw_parts(&parts)
    }

    pub(crate) fn raw_parts(&self, parts: &[&[u8]]) -> Result<Value, ServerError> {
        let mut out = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        let mut stream = self.0.lock().unwrap();
        stream.get_mut().write_all(&out).unwrap();
        read(&mut stream).unwrap()
    }
}

#[async_trait]
impl Connection for Wire {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let mut out = Vec::new();
        for request in requests {
            request.encode(&mut out);
        }
        let mut stream = self.0.lock().unwrap();
        let failed = |error: std::io::Error| Error::new(ErrorKind::Io, "test connection").with_source(error);
        stream.get_mut().write_all(&out).map_err(failed)?;
        requests.iter().map(|_| read(&mut stream).map_err(failed)).collect()
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Result<Value, ServerError>> {
    Ok(match value(stream)? {
        Value::Error(error) => Err(error),
        value => Ok(value),
    })
}

fn value(stream: &mut BufReader<TcpStream>) -> std::io::Result<Value> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let length = || rest.parse::<usize>().ok();
    Ok(match kind {
        "+" => Value::bulk(rest),
        "-" => Value::Error(ServerError::parse(rest)),
        ":" => Value::Int(rest.parse().unwrap()),
        "_" => Value::Nil,
        "#" => Value::Bool(rest == "t"),
        "," => Value::Double(rest.parse().unwrap()),
        "$" | "=" => match length() {
            None => Value::Nil,
            Some(length) => {
                let mut body = vec![0; length + 2];
                stream.read_exact(&mut body)?;
                body.truncate(length);
                Value::Bulk(Bytes::from(body))
            }
        },
        "*" | "~" => match length() {
            None => Value::Nil,
            Some(length) => Value::Array((0..length).map(|_| value(stream)).collect::<Result<_, _>>()?),
        },
        "%" => {
            let pairs = (0..length().unwrap_or(0)).map(|_| Ok((value(stream)?, value(stream)?)));
            Value::Map(pairs.collect::<std::io::Result<_>>()?)
        }
        other => panic!("unknown reply type {other:?}"),
    })
}
