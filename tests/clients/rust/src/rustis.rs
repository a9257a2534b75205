//! rustis, which shares one connection among all tasks.

#[allow(dead_code)] // what only redis-rs has
mod adapter;

use adapter::{Call, Failure, arguments, refused, serve, token_or_nil};
use rustis::client::{Client, CustomReconnectionPolicy, IntoConfig, ReconnectionConfig};
use rustis::resp::{Value, cmd};
use std::time::Duration;

#[tokio::main]
async fn main() {
    let given = arguments();
    let address = format!("redis://{}:{}", given.host, given.port);
    let shared = Client::connect(address.as_str())
        .await
        .expect("a connection");
    serve("rustis", call(shared), || holder(&address)).await;
}

async fn holder(address: &str) -> Result<(Call, String), Failure> {
    let mut config = address.into_config()?;
    config.command_timeout = Duration::from_secs(10);
    config.reconnection =
        ReconnectionConfig::Custom(CustomReconnectionPolicy::new(|_attempt: u32| None));
    let me = Client::connect(config).await?;
    let acquire = cmd("LOCK.ACQUIRE").arg("report").arg("WAIT").arg(6000);
    let token: Option<u64> = me.send(acquire, None).await?;
    Ok((call(me), token_or_nil(token)))
}

fn call(client: Client) -> Call {
    Box::new(move |words| {
        let client = client.clone();
        Box::pin(async move {
            let mut words = words.into_iter();
            let name: &'static str = words.next().expect("a command").leak();
            let command = words.fold(cmd(name), |command, word| command.arg(word));
            match client.send::<Value>(command, None).await {
                Ok(Value::Null) => "nil".into(),
                Ok(Value::Integer(number)) => number.to_string(),
                Ok(other) => other.to_string(),
                Err(error) => refused(error),
            }
        })
    })
}
