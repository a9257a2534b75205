//! redis-rs: its multiplexed connection, and its pools.

mod adapter;

use adapter::{Call, Failure, Said, arguments, refused, serve, token_or_nil};
use bb8_redis::RedisConnectionManager;
use redis::{Client, Cmd, RedisResult, Value, cmd, from_redis_value};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::spawn_blocking;

#[tokio::main]
async fn main() {
    let given = arguments();
    let (host, port, protocol) = (given.host, given.port, given.protocol);
    let url = format!("redis://{host}:{port}/?protocol=resp{protocol}");
    let call = shared(&url, &given.pool).await.expect("a client");
    serve("redis", call, || async {
        let (host, port) = (host.clone(), port);
        spawn_blocking(move || holder(host, port))
            .await
            .expect("a thread")
    })
    .await;
}

async fn shared(url: &str, pool: &str) -> Result<Call, Failure> {
    Ok(match pool {
        "r2d2" => {
            let pool = r2d2::Pool::builder()
                .max_size(3)
                .build(Client::open(url)?)?;
            Box::new(move |words| {
                let pool = pool.clone();
                let ask = move || match pool.get() {
                    Ok(mut connection) => said(command(words).query(&mut *connection)),
                    Err(error) => refused(error),
                };
                said_by(spawn_blocking(ask))
            })
        }
        "bb8" => {
            let manager = RedisConnectionManager::new(url)?;
            let pool = bb8_redis::bb8::Pool::builder().build(manager).await?;
            Box::new(move |words| {
                let pool = pool.clone();
                Box::pin(async move {
                    match pool.get().await {
                        Ok(mut connection) => {
                            said(command(words).query_async(&mut *connection).await)
                        }
                        Err(error) => refused(error),
                    }
                })
            })
        }
        "deadpool" => {
            let pool = deadpool_redis::Config::from_url(url).create_pool(None)?;
            Box::new(move |words| {
                let pool = pool.clone();
                Box::pin(async move {
                    match pool.get().await {
                        Ok(mut connection) => {
                            said(command(words).query_async(&mut connection).await)
                        }
                        Err(error) => refused(error),
                    }
                })
            })
        }
        _ => {
            let connection = Client::open(url)?
                .get_multiplexed_async_connection()
                .await?;
            Box::new(move |words| {
                let mut connection = connection.clone();
                Box::pin(async move { said(command(words).query_async(&mut connection).await) })
            })
        }
    })
}

fn holder(host: String, port: u16) -> Result<(Call, String), Failure> {
    let mut me = Client::open((host, port))?.get_connection()?;
    me.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut acquire = cmd("LOCK.ACQUIRE");
    acquire.arg("report").arg("WAIT").arg(6000);
    let token: Option<u64> = acquire.query(&mut me)?;

    let me = Arc::new(Mutex::new(me));
    let call: Call = Box::new(move |words| {
        let me = me.clone();
        let ask = move || said(command(words).query(&mut *me.lock().expect("a connection")));
        said_by(spawn_blocking(ask))
    });
    Ok((call, token_or_nil(token)))
}

fn said_by(thread: tokio::task::JoinHandle<String>) -> Said {
    Box::pin(async { thread.await.expect("a thread") })
}

fn command(words: Vec<String>) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

fn said(reply: RedisResult<Value>) -> String {
    match reply {
        Ok(Value::Nil) => "nil".into(),
        Ok(Value::Int(number)) => number.to_string(),
        Ok(other) => from_redis_value::<String>(other.clone())
            .unwrap_or_else(|_| format!("{other:?}").replace('\n', " ")),
        Err(error) => refused(error),
    }
}
