//! fred, which shares one connection among all tasks.

#[allow(dead_code)] // what only redis-rs has
mod adapter;

use adapter::{Call, Failure, arguments, refused, serve, token_or_nil};
use fred::interfaces::ClientLike;
use fred::prelude::{Builder, Client, Config, ReconnectPolicy, ServerConfig};
use fred::types::{ClusterHash, CustomCommand, RespVersion, Value};
use std::time::Duration;

#[tokio::main]
async fn main() {
    let given = arguments();
    let (host, port) = (given.host.as_str(), given.port);
    let mut config = Config {
        server: ServerConfig::new_centralized(host, port),
        ..Config::default()
    };
    if given.protocol == 3 {
        config.version = RespVersion::RESP3;
    }
    let mut builder = Builder::from_config(config);
    builder.set_policy(ReconnectPolicy::default());
    let shared = builder.build().expect("a client");
    shared.init().await.expect("a connection");
    serve("fred", call(shared), || holder(host, port)).await;
}

async fn holder(host: &str, port: u16) -> Result<(Call, String), Failure> {
    let config = Config {
        server: ServerConfig::new_centralized(host, port),
        ..Config::default()
    };
    let me = Builder::from_config(config)
        .with_performance_config(|how| how.default_command_timeout = Duration::from_secs(10))
        .build()?; // without set_policy it does not reconnect
    me.init().await?;
    let acquire = CustomCommand::new_static("LOCK.ACQUIRE", ClusterHash::FirstKey, false);
    let words = vec!["report", "WAIT", "6000"];
    let token: Option<u64> = me.custom(acquire, words).await?;
    Ok((call(me), token_or_nil(token)))
}

fn call(client: Client) -> Call {
    Box::new(move |mut words| {
        let client = client.clone();
        Box::pin(async move {
            let name = words.remove(0);
            let command = CustomCommand::new(name, ClusterHash::FirstKey, false);
            match client.custom::<Value, String>(command, words).await {
                Ok(Value::Null) => "nil".into(),
                Ok(other) => other.as_string().unwrap_or_else(|| format!("{other:?}")),
                Err(error) => refused(error),
            }
        })
    })
}
