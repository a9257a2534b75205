//! `tether metrics`: the metrics as text (text.rs), printed once or served by HTTP.

mod text;

use super::print;
use super::server::{Failure, Server};
use crate::options::Metrics;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// So many ask at a time; others wait.
const AT_ONCE: usize = 4;
/// How long a client may take to say what it wants.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The text format that Prometheus reads.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub fn metrics(url: &str, options: &Metrics) -> Result<u8, Failure> {
    let Some(address) = options.listen else {
        print(&ask(url)?)?;
        return Ok(0);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(url.into(), address))
}

fn ask(url: &str) -> Result<String, Failure> {
    let mut server = Server::at(url)?;
    let info = server.info("tether")?;
    text::metrics(&info).ok_or_else(Failure::no_module)
}

/// Ends only if nobody can connect any more.
async fn serve(url: Arc<str>, address: SocketAddr) -> Result<u8, Failure> {
    let cannot = |error: io::Error| Failure::Failed(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr()?;
    print(&format!("http://{address}/metrics\n"))?;
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let turn = turns.clone().acquire_owned().await;
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The connection is gone again, or there are too many open files for a moment.
            Err(error) => {
                eprintln!("tether: {address}: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let url = url.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(url.clone(), request));
            // A client that breaks off is its own concern.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(turn);
        });
    }
}

async fn answer<B>(
    url: Arc<str>,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_question || request.uri().path() != "/metrics" {
        let nothing = Response::new(Full::from("Here is only GET /metrics.\n"));
        return Ok(with_status(nothing, StatusCode::NOT_FOUND));
    }
    let asked = spawn_blocking(move || ask(&url)).await;
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
