//! `tether metrics`: the metrics as text (text.rs), printed once or served by HTTP.
//!
//! Whoever connects and says nothing costs a place for a while, and keeps nobody from being answered: the places are many, and
//! where all are taken, the oldest of those who have asked nothing yet loses its own.

mod text;

use super::print;
use super::server::{Failure, Server};
use crate::address::Target;
use crate::options::Metrics;
use crate::output;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, LocalSet, spawn_blocking, spawn_local};
use tokio::time::{sleep, timeout};

/// So many ask the server at a time; others wait.
const AT_ONCE: usize = 4;
/// So many connections are open.
const PLACES: usize = 64;
/// How long a client may take to say what it wants.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may last in all.
const ALL_WITHIN: Duration = Duration::from_secs(30);
/// The text format that Prometheus reads.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub fn metrics(target: &Target, options: &Metrics) -> Result<u8, Failure> {
    let Some(address) = options.listen else {
        print(&ask(target)?)?;
        return Ok(0);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, serve(target.clone(), address))
}

fn ask(target: &Target) -> Result<String, Failure> {
    let mut server = Server::at(target)?;
    let info = server.info("tether")?;
    text::metrics(&info).ok_or_else(|| Failure::no_module(&server.name))
}

/// The connections that are open.
#[derive(Default)]
struct Places {
    taken: VecDeque<Place>,
}

struct Place {
    task: AbortHandle,
    has_asked: Rc<Cell<bool>>,
}

impl Places {
    /// Whether there is one more, if need be that of a client which has asked nothing.
    fn make_room(&mut self) -> bool {
        self.taken.retain(|place| !place.task.is_finished());
        if self.taken.len() < PLACES {
            return true;
        }
        let idle = self.taken.iter().position(|place| !place.has_asked.get());
        let Some(idle) = idle.and_then(|at| self.taken.remove(at)) else {
            return false;
        };
        idle.task.abort();
        true
    }
}

/// What all connections share.
struct Desk {
    target: Target,
    turns: Arc<Semaphore>,
}

/// Ends only if nobody can connect any more.
async fn serve(target: Target, address: SocketAddr) -> Result<u8, Failure> {
    let cannot = |error: io::Error| Failure::Failed(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr()?;
    print(&format!("http://{address}/metrics\n"))?;
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let desk = Rc::new(Desk { target, turns });
    let mut places = Places::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The connection is gone again, or there are too many open files for a moment.
            Err(error) => {
                output::complain(format!("{address}: {error}"));
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        if places.make_room() {
            let has_asked = Rc::new(Cell::new(false));
            let attended = attend(desk.clone(), stream, has_asked.clone());
            let task = spawn_local(attended).abort_handle();
            places.taken.push_back(Place { task, has_asked });
        }
    }
}

async fn attend(desk: Rc<Desk>, stream: TcpStream, has_asked: Rc<Cell<bool>>) {
    let answer = service_fn(move |request| {
        has_asked.set(true);
        answer(desk.clone(), request)
    });
    let attended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // A client that breaks off is its own concern.
    let _ = timeout(ALL_WITHIN, attended).await;
}

async fn answer<B>(
    desk: Rc<Desk>,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_question || request.uri().path() != "/metrics" {
        let nothing = Response::new(Full::from("Here is only GET /metrics.\n"));
        return Ok(with_status(nothing, StatusCode::NOT_FOUND));
    }
    let turn = desk.turns.clone().acquire_owned().await;
    let target = desk.target.clone();
    let asked = spawn_blocking(move || {
        let _turn = turn;
        ask(&target)
    });
    let asked = asked.await;
    let text = match asked {
        Ok(Ok(text)) => text,
        failed => {
            if let Ok(Err(failure)) = failed {
                super::code(Err(failure));
            }
            text::down()
        }
    };
    let mut answer = Response::new(Full::from(text));
    answer.headers_mut().insert(CONTENT_TYPE, FORMAT);
    Ok(answer)
}

fn with_status<T>(mut response: Response<T>, status: StatusCode) -> Response<T> {
    *response.status_mut() = status;
    response
}
