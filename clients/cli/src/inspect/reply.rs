//! What replies hold.

use redis::{FromRedisValue, ParsingError, RedisError, Value};
use serde_json::json;

/// A map with names.
#[derive(Clone, Debug)]
pub struct Map(Vec<(String, Value)>);

impl FromRedisValue for Map {
    fn from_redis_value(value: Value) -> Result<Map, ParsingError> {
        let pairs: Vec<(String, Value)> = redis::from_redis_value(value)?;
        Ok(Map(pairs))
    }
}

impl Map {
    /// What has that name; null if nothing has.
    pub fn get(&self, name: &str) -> &Value {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or(&Value::Nil, |(_, value)| value)
    }

    pub fn text(&self, name: &str) -> String {
        match self.get(name) {
            Value::BulkString(bytes) => super::text::shown(bytes),
            Value::SimpleString(text) => text.clone(),
            Value::Int(number) => number.to_string(),
            _ => String::new(),
        }
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The maps in an array.
    pub fn maps(&self, name: &str) -> Result<Vec<Map>, RedisError> {
        match self.get(name) {
            Value::Nil => Ok(Vec::new()),
            value => Ok(redis::from_redis_value(value.clone())?),
        }
    }

    pub fn json(&self) -> serde_json::Value {
        self.0
            .iter()
            .map(|(name, value)| (snake_case(name), json_of(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// With the server that said it.
    pub fn json_at(&self, server: &str) -> serde_json::Value {
        let mut json = self.json();
        json["server"] = json!(server);
        json
    }
}

/// `held-ms` is `held_ms`, which programs can write as a field.
fn snake_case(name: &str) -> String {
    name.replace('-', "_")
}

/// As JSON. Bytes that are not UTF-8 are replaced, since JSON has none.
pub fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Int(number) => json!(number),
        Value::BulkString(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => json!(text),
        Value::Array(values) | Value::Set(values) => values.iter().map(json_of).collect(),
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| {
                let name = match name {
                    Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    Value::SimpleString(text) => text.clone(),
                    other => json_of(other).to_string(),
                };
                (snake_case(&name), json_of(value))
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Double(number) => json!(number),
        Value::Boolean(is) => json!(is),
        _ => serde_json::Value::Null,
    }
}
