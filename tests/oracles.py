"""Slow, obvious twins of the algorithm: one loop per sum and per rule of the paper, no tensors."""

import math

Point = list[float]


def squared_distance(a: Point, b: Point) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def squared_distances(points: list[Point]) -> list[list[float]]:
    return [[squared_distance(a, b) for b in points] for a in points]


def gamma_from_scale(points: list[Point]) -> float:
    entries = [entry for point in points for entry in point]
    mean = sum(entries) / len(entries)
    variance = sum((entry - mean) ** 2 for entry in entries) / len(entries)
    return 1 / (len(points[0]) * variance)


def nearest(distances: list[list[float]], i: int, allowed: list[int], k: int) -> list[int]:
    return sorted(allowed, key=lambda j: distances[i][j])[:k]


def support_anchors(distances, labels, support, misclassified, k):
    """Equation 4: j is ruled out if it is i, a support vector, of another class or misclassified."""
    n = len(labels)
    return {
        i: nearest(
            distances,
            i,
            [j for j in range(n) if i != j and j not in support and labels[i] == labels[j] and j not in misclassified],
            k,
        )
        for i in support
    }


def correction_anchors(distances, labels, support, misclassified, k, *, any_class):
    """Equation 6: j must be another support vector; of the image's own class unless any will do."""
    return {
        i: nearest(distances, i, [j for j in support if j != i and (any_class or labels[i] == labels[j])], k)
        for i in misclassified
    }


def equation_6(distances, support, misclassified):
    """Z (n, n): d_ij if i is in Q, j is in S and i is not j; otherwise tau."""
    tau, n = math.inf, len(distances)
    return [
        [distances[i][j] if i in misclassified and j in support and i != j else tau for j in range(n)] for i in range(n)
    ]


def equation_7(z, misclassified, k):
    """The first k entries of argsort(z_q) for every q in Q; tau marks pairs that are of no interest."""
    order = {q: sorted(range(len(z)), key=lambda j, row=z[q]: row[j]) for q in misclassified}
    return {q: [j for j in order[q][:k] if z[q][j] < math.inf] for q in misclassified}


def opposite_anchors(distances, labels, moved, settled, k):
    """Equation 8: j must be settled and of the other class."""
    return {i: nearest(distances, i, [j for j in settled if labels[i] != labels[j]], k) for i in moved}


def pull_loss(points: list[Point], anchors: dict[int, list[int]], *, squared: bool = True) -> float:
    """Equations 11 and 12."""
    if not anchors:
        return 0.0
    total = 0.0
    for i, chosen in anchors.items():
        for j in chosen:
            distance = squared_distance(points[i], points[j])
            total += distance if squared else math.sqrt(distance)
    return total / len(anchors)


def separation_loss(points: list[Point], anchors: dict[int, list[int]]) -> float:
    """Equation 13."""
    total = sum(squared_distance(points[i], points[j]) for i, chosen in anchors.items() for j in chosen)
    return len(anchors) / total if total else 0.0


def contrast_loss(points, own: dict[int, list[int]], other: dict[int, list[int]], scale: float) -> float:
    costs = []
    for i in own:
        if own[i] and other[i]:
            near = sum(squared_distance(points[i], points[j]) for j in own[i]) / len(own[i])
            far = sum(squared_distance(points[i], points[j]) for j in other[i]) / len(other[i])
            costs.append(math.log1p(math.exp(scale * (near - far) + 1)))
    return sum(costs) / len(costs) if costs else 0.0


def scatter_with_mirror_images(
    points: list[Point], labels: list[int], differences: list[Point], share: float
) -> list[list[float]]:
    """The two covariances, within classes and between mirror images, each in units of its mean variance, added up."""
    n_features = len(points[0])
    within = within_class_covariance(points, labels)
    between = [
        [sum(d[a] * d[b] for d in differences) / len(differences) for b in range(n_features)] for a in range(n_features)
    ]
    units = [sum(matrix[a][a] for a in range(n_features)) / n_features for matrix in (within, between)]
    return [
        [(1 - share) * within[a][b] / units[0] + share * between[a][b] / units[1] for b in range(n_features)]
        for a in range(n_features)
    ]


def within_class_covariance(points: list[Point], labels: list[int]) -> list[list[float]]:
    """Mean product of two coordinates' distances from the mean of the point's own class."""
    n_features = len(points[0])

    def away(i: int, feature: int) -> float:
        own = [other[feature] for other, label in zip(points, labels, strict=True) if label == labels[i]]
        return points[i][feature] - sum(own) / len(own)

    return [
        [sum(away(i, a) * away(i, b) for i in range(len(points))) / len(points) for b in range(n_features)]
        for a in range(n_features)
    ]
