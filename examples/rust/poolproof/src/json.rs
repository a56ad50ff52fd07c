//! The little JSON that the server needs: values as they are read, and texts as they are written.
//!
//! Integers only; of escapes those that may stand in what Poolproof sends.

/// A value.
#[derive(Debug, PartialEq)]
pub enum Json {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.iter().find(|(name, _)| name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Json::Integer(value) => Some(*value),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(value) => Some(value),
            _ => None,
        }
    }

    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(values) => values,
            _ => &[],
        }
    }
}

/// The value that a line holds, or what was expected in its place.
pub fn read(line: &str) -> Result<Json, String> {
    let mut reader = Reader {
        bytes: line.as_bytes(),
        at: 0,
    };
    let value = reader.value(0)?;
    match reader.next() {
        None => Ok(value),
        Some(_) => Err(format!(
            "expected the end of the line at byte {}",
            reader.at
        )),
    }
}

const MOST_NESTING: usize = 32;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte that is no space, without taking it.
    fn next(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, expected: u8) -> Result<(), String> {
        if self.next() == Some(expected) {
            self.at += 1;
            return Ok(());
        }
        Err(format!(
            "expected {:?} at byte {}",
            char::from(expected),
            self.at
        ))
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MOST_NESTING {
            return Err("nested too deeply".to_string());
        }
        match self.next() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::Text(self.quoted()?)),
            Some(b't') => self.word("true", Json::Boolean(true)),
            Some(b'f') => self.word("false", Json::Boolean(false)),
            Some(b'n') => self.word("null", Json::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, String> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err(format!("expected {word} at byte {}", self.at))
    }

    fn number(&mut self) -> Result<Json, String> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b'-' | b'0'..=b'9')) {
            self.at += 1;
        }
        std::str::from_utf8(&self.bytes[start..self.at])
            .ok()
            .and_then(|digits| digits.parse().ok())
            .map(Json::Integer)
            .ok_or_else(|| format!("expected a value at byte {start}"))
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.take(b'"')?;
        let mut text = Vec::new();
        loop {
            match self.bytes.get(self.at) {
                None => return Err("expected the end of a text".to_string()),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    text.extend(self.bytes.get(self.at));
                }
                Some(byte) => text.push(*byte),
            }
            self.at += 1;
        }
        self.at += 1;
        String::from_utf8(text).map_err(|error| error.to_string())
    }

    fn array(&mut self, depth: usize) -> Result<Json, String> {
        let mut values = Vec::new();
        self.take(b'[')?;
        while self.next() != Some(b']') {
            if !values.is_empty() {
                self.take(b',')?;
            }
            values.push(self.value(depth + 1)?);
        }
        self.take(b']')?;
        Ok(Json::List(values))
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        let mut fields = Vec::new();
        self.take(b'{')?;
        while self.next() != Some(b'}') {
            if !fields.is_empty() {
                self.take(b',')?;
            }
            let key = self.quoted()?;
            self.take(b':')?;
            fields.push((key, self.value(depth + 1)?));
        }
        self.take(b'}')?;
        Ok(Json::Object(fields))
    }
}

/// A text with its quotes.
pub fn quoted(text: &str) -> String {
    let mut written = String::from("\"");
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            written.push('\\');
        }
        written.push(if character < ' ' { ' ' } else { character });
    }
    written.push('"');
    written
}

/// A list of values that are written already.
pub fn list(values: impl IntoIterator<Item = String>) -> String {
    let mut written = String::from("[");
    for value in values {
        if written.len() > 1 {
            written.push(',');
        }
        written.push_str(&value);
    }
    written.push(']');
    written
}

/// A block, or null.
pub fn optional(block: Option<usize>) -> String {
    block.map_or_else(|| "null".to_string(), |id| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_sent() {
        let line = r#"{"seq": 2, "commands": [{"do": "free", "block_ids": [1, -1]}], "on": true}"#;
        let message = read(line).expect("it is JSON");
        assert_eq!(message.get("seq").and_then(Json::integer), Some(2));
        let command = &message.get("commands").expect("they are there").list()[0];
        assert_eq!(command.get("do").and_then(Json::text), Some("free"));
        assert_eq!(
            command.get("block_ids").expect("they are there").list()[1],
            Json::Integer(-1)
        );
    }

    #[test]
    fn says_where_a_line_ends_too_early() {
        assert_eq!(read("{\"seq\": 2").unwrap_err(), "expected ',' at byte 9");
    }
}
