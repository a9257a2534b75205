//! What replies hold.

use super::server::Failure;
use redis::{FromRedisValue, ParsingError, Value};
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

    /// The maps in an array, which this server has sent.
    pub fn maps(&self, name: &str, server: &str) -> Result<Vec<Map>, Failure> {
        match self.get(name) {
            Value::Nil => Ok(Vec::new()),
            value => redis::from_redis_value(value.clone())
                .map_err(|error| Failure::not_understood(server, &error)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sent_what_is_no_map_is_named() {
        let map = Map(vec![("holders".to_owned(), Value::Int(1))]);
        assert!(map.maps("waiters", "here:1").unwrap().is_empty());
        match map.maps("holders", "here:1") {
            Err(Failure::Failed(why)) => assert!(
                why.starts_with("here:1: the answer is not understood: "),
                "{why}"
            ),
            other => panic!("{other:?}"),
        }
    }
}
