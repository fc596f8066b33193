//! Serves the metrics over HTTP.
//!
//! Two things may come from elsewhere than a scraper. A web page of a stranger can have a name of its own
//! point to this address and then read what is answered (DNS rebinding): such a request carries that name
//! in its `Host`, and is refused. And a client may be slow, or say nothing: each has a thread of its own and
//! little time, so that nobody waits for it.

use std::collections::VecDeque;
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vramfit_analysis::{Error, Result};

use super::prometheus::text;
use super::snapshot::Snapshot;

/// The type of the answer.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Longer requests are none that a scraper makes.
const MAX_REQUEST: usize = 8 << 10;
/// A request must have come, and its answer must have gone, in this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// So many requests are answered at the same time; for one more the oldest has to go.
const MAX_CONNECTIONS: usize = 32;

/// A server that answers with the last board.
pub(super) struct Server {
    metrics: Arc<Mutex<String>>,
    pub(super) address: SocketAddr,
}

impl Server {
    /// Begins to listen, and answers in threads of its own until the process ends.
    ///
    /// # Errors
    /// `io` when the port cannot be had.
    pub(super) fn start(address: IpAddr, port: u16) -> Result<Self> {
        let wanted = SocketAddr::new(address, port);
        let cannot = |error: std::io::Error| {
            let refused = Error::io(format!("cannot listen on {wanted}"));
            let in_use = error.kind() == IoErrorKind::AddrInUse;
            let refused = refused.cause(error);
            if in_use {
                refused.hint("another program uses the port; choose another one")
            } else {
                refused
            }
        };
        let listener = TcpListener::bind(wanted).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let metrics = Arc::new(Mutex::new(String::new()));
        let served = Arc::clone(&metrics);
        thread::spawn(move || accept(&listener, address.ip(), &served));
        Ok(Server { metrics, address })
    }

    /// Answers with these metrics from now on.
    pub(super) fn update(&self, snapshot: &Snapshot) {
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = text(snapshot);
    }
}

fn accept(listener: &TcpListener, bound: IpAddr, metrics: &Arc<Mutex<String>>) {
    let machine = machine_name();
    let mut open: VecDeque<TcpStream> = VecDeque::new();
    for stream in listener.incoming().flatten() {
        // What ended has nobody at the other end any more.
        open.retain(|stream| stream.peer_addr().is_ok());
        while open.len() >= MAX_CONNECTIONS {
            if let Some(oldest) = open.pop_front() {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let Ok(copy) = stream.try_clone() else {
            continue;
        };
        let (metrics, machine) = (Arc::clone(metrics), machine.clone());
        let answered = thread::Builder::new().spawn(move || {
            let is_ours = |host: &str| is_ours(host, bound, &machine);
            // A scraper that hangs up is no failure of ours.
            let _ = answer(&stream, is_ours, &metrics);
            let _ = stream.shutdown(Shutdown::Both);
        });
        if answered.is_ok() {
            open.push_back(copy);
        }
    }
}

fn answer(
    mut stream: &TcpStream,
    is_ours: impl Fn(&str) -> bool,
    metrics: &Mutex<String>,
) -> std::io::Result<()> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut part)?;
        request.extend_from_slice(&part[..read]);
        if read == 0 || request.len() > MAX_REQUEST {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request);
    let mut lines = request.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let version = words.next().unwrap_or("");
    let path = target.split('?').next().unwrap_or("");
    let headers = lines.filter_map(|line| line.split_once(':'));
    let hosts = headers.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let hosts: Vec<&str> = hosts.map(|(_, host)| host.trim()).collect();
    let is_addressed = match hosts[..] {
        [host] => is_ours(host),
        // Before HTTP/1.1 there was none; no browser speaks that.
        [] => version == "HTTP/1.0",
        _ => false,
    };
    let metrics = metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, body) = match (method, path) {
        _ if !is_addressed => ("403 Forbidden", "the Host header does not name this machine\n"),
        ("GET" | "HEAD", "/metrics") => ("200 OK", &*metrics),
        ("GET" | "HEAD", _) => ("404 Not Found", "not found; the metrics are at /metrics\n"),
        _ => ("405 Method Not Allowed", "only GET and HEAD are supported\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// Returns `true` if a `Host` names this server: an address (nobody can have another one point here),
/// `localhost` where that is served, or the machine's own name where other machines are.
fn is_ours(host: &str, bound: IpAddr, machine: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        return bound.is_unspecified() || address.to_canonical() == bound.to_canonical();
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_local = bound.is_loopback() || bound.is_unspecified();
    if name == "localhost" {
        return is_local;
    }
    let machine = machine.to_ascii_lowercase();
    let short = machine.split('.').next().unwrap_or("");
    let within = |long: &str, short: &str| {
        let rest = long.strip_prefix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !bound.is_loopback() && !short.is_empty() && within(&name, short)
}

fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let server = Server::start(IpAddr::from([127, 0, 0, 1]), 0).expect("a free port");
        *server.metrics.lock().expect("nobody else has it") = "vramfit_driver_up 1\n".to_owned();
        server
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let all = IpAddr::from([0, 0, 0, 0]);
        let six: IpAddr = "::1".parse().expect("an address");
        let outer = IpAddr::from([10, 1, 2, 3]);
        for (host, bound, ours) in [
            ("127.0.0.1:9178", loopback, true),
            ("localhost:9178", loopback, true),
            ("LOCALHOST", loopback, true),
            ("[::1]:9178", six, true),
            ("evil.example:9178", loopback, false),
            ("127.0.0.1.evil.example", loopback, false),
            ("10.1.2.3:9178", loopback, false),
            ("", loopback, false),
            ("node7:9178", loopback, false),
            ("10.1.2.3:9178", outer, true),
            ("10.1.2.4:9178", outer, false),
            ("localhost:9178", outer, false),
            ("node7:9178", outer, true),
            ("node7.cluster.local:9178", all, true),
            ("node70:9178", all, false),
            ("192.168.1.5:9178", all, true),
            ("evil.example", all, false),
        ] {
            assert_eq!(is_ours(host, bound, "node7.cluster.local"), ours, "{host} at {bound}");
        }
    }

    #[test]
    fn a_foreign_host_gets_no_metrics() {
        let server = server();
        let get = |host: &str| ask(&server, &format!("GET /metrics HTTP/1.1\r\n{host}\r\n"));
        let ours = get(&format!("Host: {}\r\n", server.address));
        assert!(ours.starts_with("HTTP/1.1 200 OK"), "{ours}");
        assert!(ours.ends_with("vramfit_driver_up 1\n"), "{ours}");
        for foreign in ["Host: evil.example\r\n", "", "Host: localhost\r\nHost: evil.example\r\n"] {
            let refused = get(foreign);
            assert!(refused.starts_with("HTTP/1.1 403"), "{foreign}: {refused}");
            assert!(!refused.contains("driver_up"), "{refused}");
        }
        let old = ask(&server, "GET /metrics HTTP/1.0\r\n\r\n");
        assert!(old.starts_with("HTTP/1.1 200 OK"), "{old}");
    }

    #[test]
    fn slow_clients_keep_nobody_waiting() {
        let server = server();
        // More of them than are answered at the same time, and none says its request to the end.
        let slow = (0..2 * MAX_CONNECTIONS).map(|_| {
            let mut stream = TcpStream::connect(server.address).expect("it listens");
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").expect("it reads");
            stream
        });
        let slow: Vec<_> = slow.collect();
        let start = Instant::now();
        let answer =
            ask(&server, &format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", server.address));
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // One after the other they would take two minutes.
        assert!(start.elapsed() < REQUEST_TIMEOUT * 10, "{:?}", start.elapsed());
        drop(slow);
    }
}
