CREATE STREAMING TABLE dutch_orders AS
SELECT amount FROM STREAM orders WHERE country = 'NL';

CREATE MATERIALIZED VIEW totals AS
SELECT country, COUNT(*) AS orders, SUM(amount) AS amount FROM orders GROUP BY country;
