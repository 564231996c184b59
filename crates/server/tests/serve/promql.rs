//! What a PromQL expression asks for: the metrics, the values of labels, and the labels that it groups by.
//! It takes expressions apart; whether they are valid, promtool says.

/// A metric, and the labels that it is selected by.
#[derive(Debug, PartialEq)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) matchers: Vec<Matcher>,
}

/// `label="value"`, or with another operator.
#[derive(Debug, PartialEq)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) value: String,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Expression {
    pub(crate) selectors: Vec<Selector>,
    /// The labels between the brackets of `by`, `on` and their like.
    pub(crate) grouping: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];

impl Expression {
    pub(crate) fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut rest = tokens.as_slice();
        let mut expression = Self::default();
        while let [token, after @ ..] = rest {
            rest = expression.take(token, after);
        }
        expression
    }

    /// Takes a token and what belongs to it: what is left.
    fn take<'a>(&mut self, token: &Token, after: &'a [Token]) -> &'a [Token] {
        match (token, after) {
            (Token::Sign('['), _) => enclosed(after, ']').1,
            (Token::Word(word), [Token::Sign('('), list @ ..])
                if GROUPING.contains(&word.as_str()) =>
            {
                let (labels, rest) = enclosed(list, ')');
                self.grouping.extend(labels.iter().filter_map(word_of));
                rest
            }
            // Grafana's own: the values of a metric's label.
            (Token::Word(word), [Token::Sign('('), list @ ..]) if word == "label_values" => {
                let (inside, rest) = enclosed(list, ')');
                let (label, metric) = inside.split_last().expect("it names a label");
                self.grouping.extend(word_of(label));
                let metric = metric.iter().find_map(word_of).expect("it names a metric");
                self.selectors.push(Selector { metric, matchers: Vec::new() });
                rest
            }
            (Token::Word(word), _) if is_operator(word) => after,
            (Token::Word(_), [Token::Sign('('), ..]) => after,
            (Token::Word(_), [Token::Word(next), ..]) if GROUPING.contains(&next.as_str()) => after,
            (Token::Word(word), _) => {
                let (matchers, rest) = match after {
                    [Token::Sign('{'), inside @ ..] => enclosed(inside, '}'),
                    _ => (&[][..], after),
                };
                let matchers = matchers.split(|token| *token == Token::Sign(','));
                let matchers = matchers.filter(|tokens| !tokens.is_empty()).map(matcher).collect();
                self.selectors.push(Selector { metric: word.clone(), matchers });
                rest
            }
            _ => after,
        }
    }
}

/// Operators, numbers, durations, and Grafana's variables in place of those.
fn is_operator(word: &str) -> bool {
    OPERATORS.contains(&word) || word.starts_with(|c: char| c.is_ascii_digit() || c == '$')
}

fn word_of(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) => Some(word.clone()),
        _ => None,
    }
}

/// What is in front of the closing sign, and what is behind it.
fn enclosed(tokens: &[Token], closing: char) -> (&[Token], &[Token]) {
    let end = tokens.iter().position(|token| *token == Token::Sign(closing)).expect("it closes");
    (&tokens[..end], &tokens[end + 1..])
}

fn matcher(tokens: &[Token]) -> Matcher {
    let [Token::Word(label), operator @ .., Token::Text(value)] = tokens else {
        panic!("not a matcher: {tokens:?}");
    };
    let sign = |token: &Token| match token {
        Token::Sign(sign) => *sign,
        _ => panic!("not an operator: {tokens:?}"),
    };
    let operator = operator.iter().map(sign).collect();
    Matcher { label: label.clone(), operator, value: value.clone() }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' {
            let end = rest[1..].find('"').expect("a text ends") + 1;
            tokens.push(Token::Text(rest[1..end].to_owned()));
            end + 1
        } else if is_part(first) {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else {
            tokens.push(Token::Sign(first));
            first.len_utf8()
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_:.$".contains(c)
}

#[test]
fn an_expression_is_taken_apart() {
    let text = r#"sum by (job, le) (rate(a_total{b=~"c|d", e!="f"}[5m] offset 1h)) / on (g) x:y:z > 1.5e3
        and label_values(h, i) unless (absent(j))"#;
    let matcher = |label: &str, operator: &str, value: &str| Matcher {
        label: label.to_owned(),
        operator: operator.to_owned(),
        value: value.to_owned(),
    };
    let plain = |metric: &str| Selector { metric: metric.to_owned(), matchers: Vec::new() };
    let a = Selector {
        metric: "a_total".to_owned(),
        matchers: vec![matcher("b", "=~", "c|d"), matcher("e", "!=", "f")],
    };
    let expected = Expression {
        selectors: vec![a, plain("x:y:z"), plain("h"), plain("j")],
        grouping: ["job", "le", "g", "i"].map(str::to_owned).to_vec(),
    };
    assert_eq!(Expression::parse(text), expected);
}
